"""The catalogue of models: added by name, looked into, counted, sent to nodes.

What is in whose memory is the business of `models`; here are files, and figures that
outlast the workers they were seen on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from corral.core.models.catalogue import (
    FAILED,
    FOLDER,
    READING,
    READY,
    S3,
    SERVICE,
    TYPES,
    UPLOAD,
    CatalogueModel,
    ModelFile,
    check_files,
    check_type,
    read_source,
)
from corral.core.models.model import HeldModel
from corral.core.tasks.job_type import check_name
from corral.errors import Conflict, CorralError, Forbidden, InvalidField, NotFound
from corral.manager.cluster import gpus
from corral.manager.cluster.state import WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.models.memory import ModelMemory
from corral.manager.models.model_manager import ModelServiceUpdates
from corral.manager.models.peers import peers_of
from corral.manager.models.sources import (
    NotYet,
    SourceConfig,
    Sources,
    Survey,
    revision_of,
)
from corral.manager.output.objects import Objects
from corral.manager.signals import NameChanged
from corral.store.base import ModelStore

log = logging.getLogger(__name__)
_PERIOD_S = 1.0
_AGAIN_S = 5.0
_UNKNOWN_S = 30.0
_TAKEN = frozenset({"assign", "unload", "assignments"})


@dataclass(frozen=True, slots=True)
class NodeManifest:
    """What a node needs to have a model: its row, and addresses by file.

    `peers` are those on other nodes.
    """

    model: CatalogueModel
    urls: dict[str, str]
    peers: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Pull:
    """The task that brings a model to a node, and the worker there that runs it."""

    node_id: str
    worker_id: str
    task_id: str


class Catalogue:
    def __init__(
        self,
        ctx: ManagerContext,
        models: ModelMemory,
        uploads: Objects,
        config: SourceConfig,
    ) -> None:
        self._cluster = ctx.cluster
        self._store: ModelStore = ctx.store.models
        self._signals = ctx.signals
        self._objects = ctx.objects
        self._models = models
        self._uploads = uploads
        self._clock = ctx.clock
        self.sources = Sources(config)
        service = self.sources.service
        self.telling = ModelServiceUpdates(ctx, service) if service else None
        self.done: dict[str, tuple[int, int]] = {}
        """Bytes looked at, of how many, of those that are being read."""
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, float] = {}
        self._unknown: dict[str, float] = {}
        self._changed: set[str] = set()
        ctx.signals.model_loaded.listen(self.note_load)
        ctx.signals.model_held.listen(self.note_held)

    async def load(self) -> None:
        rows = await self._store.catalogue()
        self._cluster.catalogue.update((row.name, row) for row in rows)

    async def close(self) -> None:
        for job in self._jobs.values():
            job.cancel()
        await asyncio.gather(*self._jobs.values(), return_exceptions=True)
        await self.sources.close()

    # what people ask -----------------------------------------------------------
    def all(self) -> list[CatalogueModel]:
        """By name."""
        return [model for _, model in sorted(self._cluster.catalogue.items())]

    def holders(self, name: str) -> list[WorkerLink]:
        """The workers that have a model in memory, by id."""
        links = self._cluster.workers.values()
        return sorted((w for w in links if name in w.shelf.held), key=lambda w: w.id)

    def find(self, name: str) -> CatalogueModel:
        """Raises NotFound when the catalogue has no such model."""
        if name not in self._cluster.catalogue:
            known = ", ".join(sorted(self._cluster.catalogue)[:10]) or "none"
            raise NotFound(
                f"no model {name!r} in the catalogue; known: {known}", model=name
            )
        return self._cluster.catalogue[name]

    async def add(
        self, model: CatalogueModel, *, is_admin: bool = True
    ) -> CatalogueModel:
        """Take a model up, or its source anew; its files are looked at meanwhile.

        Raises:
            InvalidField, NotFound: what is wrong with what was told.
            Forbidden: only an administrator may say that.
        """
        await self._uploads.spare(
            part for file in model.files for part in file.parts or (file.sha256,)
        )
        model = self._checked(model)
        if not is_admin:
            await self._check_modest(model)
        source = read_source(model.source)
        if source.kind == UPLOAD:
            model = await self._uploaded(model)
        elif source.kind == FOLDER:
            await asyncio.to_thread(self.sources.find_folder, source)
        known = self._cluster.catalogue.get(model.name)
        if known is not None:
            seen = (known.uses, known.last_used_at, known.measures)
            model = replace(model, uses=seen[0], last_used_at=seen[1], measures=seen[2])
        model = replace(model, created_at=self._clock.now())
        await self._keep(model)
        self._stop_reading(model.name)
        if model.status == READING:
            self._read(model)
        return model

    def _checked(self, model: CatalogueModel) -> CatalogueModel:
        check_name(model.name, "name")
        if model.name in _TAKEN:
            raise InvalidField(f"a model cannot be called {model.name}", field="name")
        check_type(model.model_type)
        if model.memory_mb is not None and not 0 < model.memory_mb < 1e9:
            raise InvalidField("memory_mb must be above 0", field="memory_mb")
        return replace(model, files=check_files(model.files))

    async def _check_modest(self, model: CatalogueModel) -> None:
        if model.trust_remote_code:
            raise Forbidden("trust_remote_code needs an admin key")
        source = read_source(model.source)
        if await asyncio.to_thread(self.sources.is_modest, source):
            return
        if source.kind == S3:
            raise Forbidden(
                f"{source.place} needs an admin key, or its bucket in "
                "CORRAL_MODEL_BUCKETS"
            )
        raise Forbidden(
            "a folder outside of CORRAL_MODEL_CACHE_DIR and "
            "CORRAL_MODEL_MANAGER_PATH needs an admin key"
        )

    async def _uploaded(self, model: CatalogueModel) -> CatalogueModel:
        if not model.files:
            raise InvalidField("an upload names its files", field="files")
        parts = [part for f in model.files for part in f.parts or (f.sha256,) if f.size]
        missing = await self._objects.missing(list(dict.fromkeys(parts)))
        if missing:
            raise InvalidField(
                f"{len(missing)} objects of it are not stored, {missing[0]} first",
                field="files",
            )
        files = tuple(
            replace(f, parts=f.parts or ((f.sha256,) if f.size else ()))
            for f in model.files
        )
        revision = model.wanted or revision_of(files)
        return replace(model, files=files, status=READY, revision=revision)

    async def remove(self, name: str) -> None:
        """Forget it; what nodes and workers have of it stays until it is in the way.

        Raises:
            NotFound: there is none.
            Conflict: it is pinned somewhere.
        """
        self.find(name)
        if any(model == name for _, model in self._models.pins):
            raise Conflict(f"{name} is pinned: corral models unpin it first")
        self._stop_reading(name)
        await self._store.delete_catalogue_model(name)
        self._signals.written.tell(NameChanged("model_changed", name, is_removed=True))
        del self._cluster.catalogue[name]

    async def pull(self, name: str, node_ids: Sequence[str] = ()) -> list[Pull]:
        """Have nodes fetch a model's files, all that have workers when none is named.

        Raises:
            NotFound: the model is unknown.
            Conflict: there is no worker to do it.
        """
        self.find(name)
        serving = [
            link
            for link in self._cluster.workers.values()
            if self._cluster.is_serving(link.worker)
        ]
        of_node = {link.worker.node_id: link for link in reversed(serving)}
        missing = [node_id for node_id in node_ids if node_id not in of_node]
        if missing or not of_node:
            where = ", ".join(missing) or "the cluster"
            raise Conflict(f"{where} has no worker that is ready to fetch {name}")
        return [
            Pull(id_, of_node[id_].id, await self._models.fetch(of_node[id_], name))
            for id_ in (node_ids or sorted(of_node))
        ]

    # what nodes ask ------------------------------------------------------------
    async def bill(self, name: str, node_id: str = "") -> NodeManifest:
        """How to get at a model; a model manager is asked for one nobody added.

        Raises:
            NotFound: nobody knows it.
            Unavailable: who may know it does not answer.
        """
        if name not in self._cluster.catalogue:
            await self._ask_service(name)
        model = self.find(name)
        peers = peers_of(self._cluster, model, node_id, self._clock.now())
        urls = await self.sources.urls(model) if model.files else {}
        return NodeManifest(model, urls, peers)

    async def _ask_service(self, name: str) -> None:
        now = self._clock.monotonic()
        service = self.sources.service
        if service is None or self._unknown.get(name, 0.0) > now:
            return
        found = await service.find(name)
        if found is None:
            self._unknown[name] = now + _UNKNOWN_S
            return
        kind = found.model_type if found.model_type in TYPES else "other"
        source = f"{SERVICE}:{found.name}"
        await self.add(CatalogueModel(name, kind, source, tags=found.tags))

    async def open_file(
        self, name: str, file_name: str, start: int
    ) -> tuple[ModelFile, AsyncIterator[bytes]]:
        """A file's bytes from `start` on, for nodes that cannot reach its source."""
        model = self.find(name)
        for file in model.files:
            if file.name == file_name:
                return file, await self.sources.open_file(model, file, start)
        raise NotFound(f"model {name} has no file {file_name!r}")

    # what is seen --------------------------------------------------------------
    def note_load(self, link: WorkerLink, held: HeldModel) -> None:
        entry = self._cluster.catalogue.get(held.name)
        if entry is None:
            return
        place = self._place(entry, link, held)
        self._cluster.catalogue[held.name] = entry.with_load(
            *place, held.size_mb, held.load_s
        )
        self._changed.add(held.name)

    def note_held(self, link: WorkerLink, held: HeldModel) -> None:
        """Keep what batches of it took, which is learned after its load."""
        entry = self._cluster.catalogue.get(held.name)
        if entry is None or not held.peaks:
            return
        told = entry.with_peaks(*self._place(entry, link, held), held.peaks)
        if told != entry:
            self._cluster.catalogue[held.name] = told
            self._changed.add(held.name)

    def _place(
        self, entry: CatalogueModel, link: WorkerLink, held: HeldModel
    ) -> tuple[str, str]:
        """The kind of device it is on, and its precision, by the worker's own word."""
        cards = gpus.of_worker(self._cluster, link)
        device = cards[0].name if cards else held.device or "cpu"
        return device, held.precision or entry.dtype or "auto"

    def _count_uses(self) -> None:
        for link in list(self._cluster.workers.values()):
            uses, link.shelf.uses = link.shelf.uses, {}
            for name, count in uses.items():
                if entry := self._cluster.catalogue.get(name):
                    self._cluster.catalogue[name] = replace(
                        entry, uses=entry.uses + count, last_used_at=self._clock.now()
                    )
                    self._changed.add(name)

    def loops(self) -> list[Loop]:
        found = [Loop("catalogue", _PERIOD_S, self.step)]
        if self.telling is not None:
            found.append(self.telling.loop())
        return found

    async def step(self) -> None:
        """Keep what was counted; look again at what could not be read to its end."""
        self._count_uses()
        changed, self._changed = self._changed, set()
        rows = [
            self._cluster.catalogue[name]
            for name in changed
            if name in self._cluster.catalogue
        ]
        await self._store.save_catalogue_figures(rows)
        now = self._clock.monotonic()
        for model in list(self._cluster.catalogue.values()):
            is_due = self._due.get(model.name, 0.0) <= now
            if model.status == READING and model.name not in self._jobs and is_due:
                self._read(model)

    # reading a source ----------------------------------------------------------
    def _read(self, model: CatalogueModel) -> None:
        job = asyncio.create_task(self._survey(model))
        self._jobs[model.name] = job
        job.add_done_callback(lambda done: self._forget(model.name, done))

    def _forget(self, name: str, job: asyncio.Task[None]) -> None:
        if self._jobs.get(name) is job:
            del self._jobs[name]
            self.done.pop(name, None)

    def _stop_reading(self, name: str) -> None:
        if (job := self._jobs.pop(name, None)) is not None:
            job.cancel()
        self.done.pop(name, None)

    async def _survey(self, model: CatalogueModel) -> None:
        def advance(done: int, total: int) -> None:
            self.done[model.name] = (done, total)

        try:
            found = await self.sources.survey(model, advance)
            ended = _with_survey(model, found)
        except NotYet as later:
            self.done[model.name] = (int((later.share or 0.0) * 100), 100)
            self._due[model.name] = self._clock.monotonic() + _AGAIN_S
            return
        except CorralError as error:
            log.warning("model %s: %s", model.name, error.message)
            ended = replace(model, status=FAILED, error=error.message)
        if self._cluster.catalogue.get(model.name) is not None:
            seen = self._cluster.catalogue[model.name]
            await self._keep(
                replace(
                    ended,
                    uses=seen.uses,
                    last_used_at=seen.last_used_at,
                    measures=seen.measures,
                )
            )

    async def _keep(self, model: CatalogueModel) -> None:
        await self._store.save_catalogue_model(model)
        self._signals.written.tell(NameChanged("model_changed", model.name))
        self._cluster.catalogue[model.name] = model
        self._unknown.pop(model.name, None)


def _with_survey(model: CatalogueModel, found: Survey) -> CatalogueModel:
    kind = model.model_type
    if kind == "other" and found.model_type in TYPES:
        kind = found.model_type
    return replace(
        model,
        files=check_files(found.files),
        revision=found.revision,
        model_type=kind,
        status=READY,
        error=None,
    )

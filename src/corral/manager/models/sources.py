"""Where the files of models come from: one reader for every kind of source.

A survey tells which files there are, with their hashes; `reach` tells nodes how to
get at them, and `open_file` gives them the bytes of what only this machine sees.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import obstore
from obstore.store import S3Store

from corral.core.models.architecture import CONFIG, UNKNOWN, type_of_files
from corral.core.models.catalogue import (
    FOLDER,
    HUB,
    S3,
    SERVICE,
    UPLOAD,
    CatalogueModel,
    ModelFile,
    ModelSource,
    read_source,
)
from corral.core.tree import fault_of
from corral.errors import InvalidField, NotFound, Unavailable
from corral.manager.models.folder import (
    CONFIG_BYTES,
    Advance,
    check_links,
    find_folder,
    find_snapshot,
    is_inside,
    is_named_inside,
    open_below,
    read_config,
    read_folder,
)
from corral.manager.models.hub import Hub
from corral.manager.models.model_manager import THERE, ModelService
from corral.store.objects import ObjectStore, S3Access, open_objects, translated

_SIGNED_FOR = timedelta(hours=6)
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """`places` are folders with models; `service_path` is what the service shares.

    `buckets` are those of S3 that operators may name, each with a prefix or whole.
    """

    places: tuple[Path, ...] = ()
    hub_url: str = "https://huggingface.co"
    hub_cache: Path | None = None
    s3: S3Access = field(default_factory=S3Access)
    service_url: str | None = None
    service_path: Path | None = None
    hub_token: str | None = field(default=None, repr=False)
    buckets: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[Path, ...]:
        more = (self.service_path,) if self.service_path else ()
        return (*self.places, *more)


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found; `model_type` where the source says it."""

    files: tuple[ModelFile, ...]
    revision: str
    model_type: str = UNKNOWN


class NotYet(Exception):
    """The source is still getting it; `share` is how far it is."""

    def __init__(self, share: float | None) -> None:
        super().__init__()
        self.share = share


class Sources:
    """Reads every kind of source."""

    def __init__(self, config: SourceConfig) -> None:
        self.config = config
        self._hub = Hub(config.hub_url, config.hub_token)
        self.service = ModelService(config.service_url) if config.service_url else None

    async def close(self) -> None:
        if self.service is not None:
            await self.service.close()

    async def survey(self, model: CatalogueModel, advance: Advance) -> Survey:
        """The files of a model's source.

        Raises:
            NotFound, InvalidField, Unavailable: why there are none.
            NotYet: try again later.
        """
        source = read_source(model.source)
        if source.kind == SERVICE:
            return await self._survey_service(model, source, advance)
        if (folder := await self.locate(model)) is not None:
            return await self._survey_folder(folder, source, advance)
        if source.kind == S3:
            return await self._survey_s3(source.place, advance)
        if source.kind == HUB:
            return Survey(*await self._hub.survey(source.place, model.wanted))
        raise NotFound(f"there are no files for {model.name}")

    async def locate(self, model: CatalogueModel) -> Path | None:
        """The folder of this machine that has a model's files, if one has."""
        return await asyncio.to_thread(self._locate, model)

    def _locate(self, model: CatalogueModel) -> Path | None:
        source = read_source(model.source)
        if source.kind == FOLDER:
            return self.find_folder(source)
        if source.kind == HUB:
            return self._snapshot(source.place, model.revision or model.wanted)
        if source.kind == SERVICE:
            return self._shared(model, source)
        return None

    def find_folder(self, source: ModelSource) -> Path:
        """Looks at disks: call it in a thread.

        Raises:
            NotFound: there is none.
            InvalidField: it leads out of the folder it is in.
        """
        found = find_folder(source.place, self.config.places)
        return check_links(found, self.config.folders)

    def is_modest(self, source: ModelSource) -> bool:
        """May whoever operates name it, or only an administrator? In a thread, too."""
        if source.kind == FOLDER:
            folder, places = self.find_folder(source), self.config.folders
            return is_named_inside(folder, places) and is_inside(folder, places)
        if source.kind == S3:
            place = f"{source.place.removeprefix('s3://').strip('/')}/"
            named = (f"{bucket.strip('/')}/" for bucket in self.config.buckets)
            return any(place.startswith(bucket) for bucket in named)
        return True

    def _snapshot(self, repo: str, revision: str) -> Path | None:
        caches = (self.config.hub_cache, *self.config.folders)
        for cache in caches:
            if cache and (found := find_snapshot(cache, repo, revision)):
                return found
        return None

    def _shared(self, model: CatalogueModel, source: ModelSource) -> Path | None:
        names = dict.fromkeys((source.place or model.name, model.name))
        for place in self.config.folders:
            for name in names:
                found = place / name
                if not fault_of(name) and found.is_dir():
                    return check_links(found, self.config.folders)
        for name in names:
            if found_there := self._snapshot(name, model.wanted):
                return found_there
        return None

    async def _survey_folder(
        self, folder: Path, source: ModelSource, advance: Advance
    ) -> Survey:
        root = _root_of(folder)
        files = await asyncio.to_thread(read_folder, folder, advance, root)
        named = revision_of(files) if root == folder else folder.name
        names = [file.name for file in files]
        config = await asyncio.to_thread(read_config, folder, root)
        return Survey(files, named, type_of_files(names, config))

    async def _survey_service(
        self, model: CatalogueModel, source: ModelSource, advance: Advance
    ) -> Survey:
        folder = await self.locate(model)
        name = source.place or model.name
        known = None
        try:
            if self.service is None:
                raise Unavailable("no model manager is set: CORRAL_MODEL_MANAGER_URL")
            known = await self.service.find(name)
        except Unavailable:
            # What it has shared is there, whether it answers or not.
            if folder is None:
                raise
        if known is not None and known.status not in THERE:
            if known.status != "downloading":
                await self._service().download(known)
            raise NotYet(await self._service().share_done(known.id))
        kind = known.model_type if known else UNKNOWN
        if folder is not None:
            found = await self._survey_folder(folder, source, advance)
            return found if kind == UNKNOWN else replace(found, model_type=kind)
        if known is None:
            raise NotFound(f"the model manager has no model {name}")
        if "/" in known.name:
            files, revision, _ = await self._hub.survey(known.name, model.wanted)
            return Survey(files, revision, kind)
        raise InvalidField(
            f"the model manager knows {known.name}, but tells nobody where its files "
            "are: set CORRAL_MODEL_MANAGER_PATH to the folder it keeps them in",
            field="source",
        )

    def _service(self) -> ModelService:
        assert self.service is not None
        return self.service

    # S3 ----------------------------------------------------------------------
    def _bucket(self, place: str) -> ObjectStore:
        return open_objects(place, self.config.s3)

    async def _survey_s3(self, place: str, advance: Advance) -> Survey:
        backend = self._bucket(place).backend
        found: dict[str, int] = {}
        with translated(place):
            async for batch in backend.list():
                found |= {str(row["path"]): row["size"] for row in batch}
        names = sorted(n for n in found if not n.rpartition("/")[2].startswith("."))
        if not names:
            raise NotFound(f"{place} has no files")
        done, total, files = 0, sum(found[name] for name in names), []
        for name in names:
            digest = hashlib.sha256()
            with translated(place):
                answer = await backend.get_async(name)
                async for piece in answer.stream(min_chunk_size=_PIECE):
                    await asyncio.to_thread(digest.update, piece)
                    done += len(piece)
                    advance(done, total)
            files.append(ModelFile(name, found[name], digest.hexdigest()))
        config = None
        if found.get(CONFIG, CONFIG_BYTES) < CONFIG_BYTES:
            with translated(place):
                answer = await backend.get_async(CONFIG)
                config = bytes(await answer.bytes_async())
        kind = type_of_files(names, config)
        return Survey(tuple(files), revision_of(tuple(files)), kind)

    # how nodes get at it -------------------------------------------------------
    async def urls(self, model: CatalogueModel) -> dict[str, str]:
        """Addresses that nodes may try before they ask us, by file."""
        source = read_source(model.source)
        names = [file.name for file in model.files]
        if source.kind == S3:
            backend = self._bucket(source.place).backend
            assert isinstance(backend, S3Store)
            with translated(source.place):
                signed = await obstore.sign_async(backend, "GET", names, _SIGNED_FOR)
            return dict(zip(names, signed, strict=True))
        repo = _repo_of(model, source)
        is_ours = repo is None or self._hub.is_private
        if repo is not None and not is_ours and await self.locate(model) is None:
            return {n: self._hub.file_url(repo, model.revision, n) for n in names}
        return {}

    async def open_file(
        self, model: CatalogueModel, file: ModelFile, start: int
    ) -> AsyncIterator[bytes]:
        """The bytes of a file from `start` on.

        Raises:
            NotFound: this machine cannot get at it.
        """
        source = read_source(model.source)
        if source.kind == S3:
            return self._from_s3(source.place, file, start)
        folder = await self.locate(model) if source.kind != UPLOAD else None
        if folder is None and (repo := _repo_of(model, source)) is not None:
            return self._hub.read(repo, model.revision, file.name, start)
        try:
            if folder is None:
                raise FileNotFoundError
            places, path = self.config.folders, folder / file.name
            stream = await asyncio.to_thread(open_below, path, _root_of(folder), places)
        except OSError as error:
            text = f"the manager cannot get at {file.name} of {model.name}"
            raise NotFound(text) from error
        return _pieces(stream, start, file.size)

    async def _from_s3(
        self, place: str, file: ModelFile, start: int
    ) -> AsyncIterator[bytes]:
        # Not by a range, which not every server gets right.
        with translated(place):
            found = await self._bucket(place).backend.get_async(file.name)
            async for piece in found.stream(min_chunk_size=_PIECE):
                if start < len(piece):
                    yield bytes(piece)[start:]
                start = max(0, start - len(piece))


def _repo_of(model: CatalogueModel, source: ModelSource) -> str | None:
    """The repository of the hub that a model is, if it is one."""
    repo = source.place or model.name
    is_hub = source.kind == HUB or (source.kind == SERVICE and "/" in repo)
    return repo if is_hub else None


def _root_of(folder: Path) -> Path:
    """Below which a folder's links may lead: itself, for a plain one."""
    # A snapshot of a hub's cache is links to files two folders up.
    is_snapshot = folder.parent.name == "snapshots"
    return folder.parent.parent if is_snapshot else folder


async def _pieces(stream: BinaryIO, start: int, end: int) -> AsyncIterator[bytes]:
    with stream:
        stream.seek(start)
        for at in range(start, end, _PIECE):
            yield await asyncio.to_thread(stream.read, min(_PIECE, end - at))


def revision_of(files: tuple[ModelFile, ...]) -> str:
    """A name for content: it changes when a file does."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.sha256} {file.name}\n".encode())
    return digest.hexdigest()[:12]

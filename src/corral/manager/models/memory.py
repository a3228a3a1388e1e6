"""Models and workers: who has which, who must keep which, and who is to drop some.

What a worker loads for a task, and drops for it, the scheduler decides. Here is the
rest: what workers say they hold, pins, loads and unloads that somebody asked for, and
the record of memory that did not come back. Loads and unloads are tasks of one worker
like any others, so they cannot be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from corral.core.backoff import Backoff
from corral.core.insight.learned import Figure
from corral.core.models.model import (
    HeldModel,
    KnownModel,
    MemoryLeak,
    Pin,
    fetch_payload,
    unload_payload,
)
from corral.core.nodes.gpu_choice import read_wish
from corral.core.tasks.job_type import MODEL_TASK
from corral.core.tasks.options import SpecOptions
from corral.core.tasks.priority import PRIORITY_WORDS
from corral.core.tasks.task import State, TaskSpec
from corral.errors import Conflict, CorralError, InvalidField
from corral.manager.clock import new_task_id
from corral.manager.cluster import gpus
from corral.manager.cluster import scheduler_events as serving
from corral.manager.cluster.held_models import STEP_MB, ReportedModels
from corral.manager.cluster.state import WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.tasks import Tasks
from corral.scheduler.events import MemoryChanged, ModelKnown, ModelsHeld, ModelsPinned
from corral.store.base import Event, ModelStore

MEMORY_NOT_FREED = "memory_not_freed"
_PERIOD_S = 1.0
_PAUSES = Backoff(5.0, 300.0)
_OWNER = "corral"
Place = tuple[str, str]
"""A worker's id, and the name of a model."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Models take at most `share` of a card; unused for `idle_s` they go, 0 is never.

    A load may take `load_s`.
    """

    share: float = 0.8
    idle_s: float = 0.0
    load_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """How a model fares on a worker, and in how many seconds it is expected there."""

    worker_id: str
    status: str
    estimated_s: float | None = None


class ModelMemory:
    def __init__(self, ctx: ManagerContext, tasks: Tasks, config: ModelConfig) -> None:
        self._cluster = ctx.cluster
        self._store: ModelStore = ctx.store.models
        self._tasks = tasks
        self._dispatch = tasks.dispatch
        self._clock = ctx.clock
        self._record = ctx.record
        self._config = config
        self._asked: dict[Place, str] = {}
        self._tries: dict[Place, tuple[int, float]] = {}
        self._learned: dict[str, KnownModel] = {}
        self.pins: dict[Place, Pin] = {}
        self._events: list[Event] = []
        self._signals = ctx.signals
        ctx.signals.models_reported.listen(self.note)
        ctx.signals.node_beat.listen(self._on_beat)

    async def load(self) -> None:
        """Take up what the store has, before anything is planned."""
        for known in await self._store.models():
            event = ModelKnown(known.name, known.size_mb, known.load_s)
            self._cluster.scheduler.apply(event)
        self.pins = {(p.worker_id, p.model): p for p in await self._store.pins()}
        for worker_id in {pin.worker_id for pin in self.pins.values()}:
            self._tell_pins(worker_id)
        for task in self._cluster.tasks.values():
            spec, only_on = task.spec, task.spec.options.only_on
            if spec.job_type == MODEL_TASK and spec.model is not None and only_on:
                self._asked[only_on, spec.model] = task.id

    # what workers say --------------------------------------------------------
    def note(self, link: WorkerLink, word: ReportedModels) -> None:
        """A worker says what it holds; an older word than the last changes nothing."""
        if word.number <= link.shelf.number:
            return
        for name, size_mb in word.sizes.items():
            if self._cluster.scheduler.known_model(name)[0] is None:
                self._learn(name, size_mb, None)
        for model in link.shelf.take(word, self._clock.now()):
            self._learn(model.name, model.size_mb, model.load_s, link.id)
            self._signals.model_loaded.tell(link, model)
        for model in word.held:
            self._signals.model_held.tell(link, model)
        if word.worn is not None and word.restarts > link.shelf.restarts:
            link.shelf.restarts = word.restarts
            self._events.append(wear_event(link, word.worn, self._clock.now()))
        held = frozenset(link.shelf.held)
        self._cluster.scheduler.apply(ModelsHeld(link.id, held))
        self._dispatch.kick()

    def _learn(
        self,
        name: str,
        size_mb: float | None,
        load_s: float | None,
        worker_id: str = "",
    ) -> None:
        scheduler = self._cluster.scheduler
        scheduler.apply(ModelKnown(name, size_mb, load_s, worker_id))
        self._learned[name] = KnownModel(name, *scheduler.known_model(name))

    def _on_beat(self, node_id: str, has_reading: bool) -> None:
        for link in self._cluster.of_node(node_id):
            if has_reading or link.shelf.room_mb is None:
                self._fit(link)

    def _fit(self, link: WorkerLink) -> None:
        shelf, cards = link.shelf, gpus.of_worker(self._cluster, link)
        room_mb, others_mb = shelf.room_mb, shelf.others_mb
        wants_cards = bool(read_wish(link.worker.spec.gpus))
        shelf.fit(cards, self._config.share, wants_cards=wants_cards)
        has_moved = abs(shelf.others_mb - others_mb) >= STEP_MB
        if shelf.room_mb != room_mb or has_moved:
            told = (link.id, serving.room_mb(link), shelf.others_mb)
            self._cluster.scheduler.apply(MemoryChanged(*told))
            self._dispatch.kick()

    # what operators ask ------------------------------------------------------
    async def assign(
        self,
        model: str,
        worker_ids: Sequence[str],
        *,
        preload: bool = True,
        pin: bool | None = None,
        priority: int = 0,
        by: str = _OWNER,
    ) -> list[ModelStatus]:
        """Load a model on workers, pin it there, or take the pin away.

        Raises:
            WorkerNotFound: one of them is unknown.
            Conflict: it is too large for one of them.
            InvalidField: there is nothing to do.
        """
        if not preload and pin is None:
            raise InvalidField("say preload, pin, or both", field="preload")
        links = [self._cluster.worker(id_) for id_ in dict.fromkeys(worker_ids)]
        if not links:
            raise InvalidField("name one worker at least", field="worker_ids")
        if preload or pin:
            for link in links:
                self._check_room(link, model)
        for link in links:
            if pin is not None:
                await self._pin(link, model, pin, preload, priority)
            if preload and model not in link.shelf.held:
                await self._ask(link, model, priority, by)
        return [self.status(link, model) for link in links]

    def _check_room(self, link: WorkerLink, model: str) -> None:
        size_mb, _ = self._cluster.scheduler.known_model(model)
        limit_mb = link.shelf.limit_mb
        if size_mb and limit_mb is not None:
            others = self._pinned_on(link.id) - {model}
            kept = sum(self._cluster.scheduler.known_model(m)[0] or 0.0 for m in others)
            if size_mb + kept > limit_mb:
                raise Conflict(
                    f"model {model} takes {size_mb:g} MB, and {link.worker.spec.name} "
                    f"has {max(0.0, limit_mb - kept):g} MB for it",
                    worker_id=link.id,
                )

    async def unload(
        self, model: str, worker_ids: Sequence[str], *, force: bool = False
    ) -> list[str]:
        """Have workers drop a model, all that have it when none is named; which do.

        Raises:
            WorkerNotFound: one of them is unknown.
            Conflict: it is pinned, and that is not overruled by `force`.
        """
        ids = dict.fromkeys(worker_ids) or dict.fromkeys(self._cluster.workers)
        links = [self._cluster.worker(id_) for id_ in ids]
        links = [link for link in links if self._has_to_do(link, model)]
        pinned = [link.id for link in links if (link.id, model) in self.pins]
        if pinned and not force:
            raise Conflict(
                f"model {model} is pinned on {', '.join(pinned)}; force unloads it",
                worker_ids=pinned,
            )
        for link in links:
            if (link.id, model) in self.pins:
                await self._pin(link, model, False, False, 0)
            await self._call_back(link, model)
            if model in link.shelf.held:
                await self._ask_to_drop(link, model)
        return [link.id for link in links]

    def _has_to_do(self, link: WorkerLink, model: str) -> bool:
        place = (link.id, model)
        return model in link.shelf.held or place in self.pins or self._is_asked(place)

    def status(self, link: WorkerLink, model: str) -> ModelStatus:
        """How a model fares on a worker."""
        place = (link.id, model)
        if model in link.shelf.held:
            return ModelStatus(link.id, "loaded", 0.0)
        expected = self.expected_load(link, model)
        load_s = expected.value if expected is not None else None
        task = self._cluster.tasks.get(self._asked.get(place, ""))
        if task is not None and task.state is not State.QUEUED:
            return ModelStatus(link.id, "loading", load_s)
        has_failed = task is None and place in self._tries
        return ModelStatus(link.id, "failed" if has_failed else "queued", load_s)

    def expected_load(self, link: WorkerLink, model: str) -> Figure | None:
        """Seconds a load there should take, and how sure that is."""
        return self._cluster.scheduler.expected_load(model, link.id)

    def of_worker(self, link: WorkerLink) -> list[str]:
        """The models a worker has, or is to have."""
        asked = [m for id_, m in self._asked if id_ == link.id]
        live = [m for m in asked if self._is_asked((link.id, m))]
        return sorted({*link.shelf.held, *self._pinned_on(link.id), *live})

    # pins --------------------------------------------------------------------
    async def _pin(
        self, link: WorkerLink, model: str, is_pin: bool, preload: bool, priority: int
    ) -> None:
        place = (link.id, model)
        if is_pin:
            pin = Pin(link.id, model, preload, priority, self._clock.now())
            await self._store.save_pin(pin)
            self.pins[place] = pin
        else:
            await self._store.delete_pin(*place)
            self.pins.pop(place, None)
            self._tries.pop(place, None)
        self._tell_pins(link.id)

    def _pinned_on(self, worker_id: str) -> frozenset[str]:
        return frozenset(model for id_, model in self.pins if id_ == worker_id)

    def _tell_pins(self, worker_id: str) -> None:
        event = ModelsPinned(worker_id, self._pinned_on(worker_id))
        self._cluster.scheduler.apply(event)

    # the loop ----------------------------------------------------------------
    def loop(self) -> Loop:
        return Loop("models", _PERIOD_S, self.step)

    async def step(self) -> None:
        """Keep what was learned, load what is pinned, drop what is idle or too much."""
        if learned := list(self._learned.values()):
            self._learned = {}
            await self._store.save_models(learned)
        if events := self._events:
            self._events = []
            await self._record(events)
        for place in [p for p in self._asked if not self._is_asked(p)]:
            del self._asked[place]
            if place not in self.pins:
                self._tries.pop(place, None)
        for pin in list(self.pins.values()):
            await self._keep(pin)
        for link in list(self._cluster.workers.values()):
            if link.shelf.held and self._cluster.is_serving(link.worker):
                await self._tidy(link)

    async def _keep(self, pin: Pin) -> None:
        place = (pin.worker_id, pin.model)
        link = self._cluster.workers.get(pin.worker_id)
        if link is None:
            await self._store.delete_pin(*place)
            del self.pins[place]
            self._tell_pins(pin.worker_id)
        elif pin.model in link.shelf.held:
            self._tries.pop(place, None)
        elif pin.preload and self._cluster.is_serving(link.worker):
            _, due = self._tries.get(place, (0, 0.0))
            if not self._is_asked(place) and self._clock.monotonic() >= due:
                await self._ask(link, pin.model, pin.priority, _OWNER)

    async def _tidy(self, link: WorkerLink) -> None:
        now = self._clock.now()
        gone = set(self._cluster.scheduler.surplus(link.id, now.timestamp()))
        if self._config.idle_s and not link.orders:
            pinned = self._pinned_on(link.id)
            gone |= {
                model.name
                for model in link.shelf.held.values()
                if model.name not in pinned
                and model.last_used is not None
                and (now - model.last_used).total_seconds() >= self._config.idle_s
            }
        gone |= {m.name for m in link.shelf.held.values() if self._is_old(m)}
        for name in sorted(gone):
            await self._ask_to_drop(link, name)

    def _is_old(self, model: HeldModel) -> bool:
        """Has the catalogue another edition now? No task may use this one any more."""
        now = self._cluster.edition(model.name)
        return bool(now and model.edition) and now != model.edition

    async def fetch(self, link: WorkerLink, model: str, by: str = _OWNER) -> str:
        """Have a worker bring a model's files to its node; the task that does."""
        return await self._submit(link, 0, by, fetch_payload(model), None)

    # asking a worker ---------------------------------------------------------
    def _is_asked(self, place: Place) -> bool:
        return self._asked.get(place, "") in self._cluster.tasks

    async def _ask(self, link: WorkerLink, model: str, priority: int, by: str) -> None:
        place = (link.id, model)
        if self._is_asked(place):
            return
        tries, _ = self._tries.get(place, (0, 0.0))
        pause_s = _PAUSES.delay_s(tries + 1)
        self._tries[place] = (tries + 1, self._clock.monotonic() + pause_s)
        self._asked[place] = await self._submit(link, priority, by, "{}", model)

    async def _ask_to_drop(self, link: WorkerLink, model: str) -> None:
        critical = PRIORITY_WORDS["critical"]
        task_id = link.shelf.dropping.get(model)
        if task_id not in self._cluster.tasks:
            payload = unload_payload(model)
            link.shelf.dropping[model] = await self._submit(
                link, critical, _OWNER, payload, None
            )

    async def _call_back(self, link: WorkerLink, model: str) -> None:
        """Nobody wants this load any more."""
        task_id = self._asked.pop((link.id, model), "")
        if task_id in self._cluster.tasks:
            await self._tasks.cancel(task_id)

    async def _submit(
        self, link: WorkerLink, priority: int, by: str, payload: str, model: str | None
    ) -> str:
        spec = TaskSpec(
            new_task_id(),
            MODEL_TASK,
            payload,
            priority,
            model,
            owner=by,
            options=SpecOptions(only_on=link.id),
        )
        (answer,) = await self._tasks.submit([spec])
        if isinstance(answer, CorralError):
            raise answer
        return answer.task.id


def wear_event(link: WorkerLink, worn: MemoryLeak, now: datetime) -> Event:
    """A runner of this worker was started anew for it."""
    title = (
        f"{link.worker.spec.name}: {worn.left_mb:g} MB did not come back when model "
        f"{worn.model} of {worn.size_mb:g} MB was unloaded; its runner was started anew"
    )
    data = {
        "worker_id": link.id,
        "model": worn.model,
        "left_mb": worn.left_mb,
        "size_mb": worn.size_mb,
    }
    node_id = link.worker.node_id
    return Event(MEMORY_NOT_FREED, title, "warning", node_id, data=data, at=now)

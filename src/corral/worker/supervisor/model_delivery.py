"""Sees to it that the models an order needs are on this node before a runner has it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from corral.core.models.model import model_to_fetch
from corral.core.tasks.job_type import MODEL_TASK
from corral.wire.orders import AttemptError, AttemptOutcome, Item
from corral.worker.depot.fetch_model import FetchedModel, ModelFetch
from corral.worker.depot.manifest import CorruptModel, Unfetched
from corral.worker.pool.runner_process import RunnerProcess
from corral.worker.supervisor.batch import OrderBatch, cancelled, returned
from corral.worker.supervisor.reports import Notes
from corral.worker.text import clean

UNKNOWN = "unknown_model"


class Stopped(Exception):
    """Nobody wants the rest of this any more, or the worker is closing."""


@dataclass(slots=True)
class Delivered:
    """What is held for an order until it is through, and what ended before."""

    outcomes: list[AttemptOutcome] = field(default_factory=list)
    held: list[FetchedModel] = field(default_factory=list)

    def release(self) -> None:
        for brought in self.held:
            brought.release()
        self.held = []

    def explain(self, notes: Notes) -> None:
        """A model nobody knew here may be one that nobody could be asked about."""
        why = "; ".join(b.trouble for b in self.held if b.trouble)
        for outcome in notes.outcomes if why else ():
            if outcome.error is not None and outcome.error.kind == UNKNOWN:
                outcome.error.message = clean(f"{outcome.error.message}; {why}")


class Delivery:
    """Used by the thread that executes an order."""

    def __init__(
        self,
        fetch: ModelFetch,
        runners: Callable[[], Iterable[RunnerProcess]],
        tell: Callable[[Notes], object],
    ) -> None:
        self._fetch = fetch
        self._runners = runners
        self._tell = tell

    def prepare(self, batch: OrderBatch) -> Delivered:
        """Bring what the order needs; items that cannot be run are taken out of it."""
        given = Delivered()
        for item in [item for item in batch.items if item.job_type == MODEL_TASK]:
            if (name := model_to_fetch(bytes(item.payload))) is not None:
                self._bring(batch, name, [item], given, is_all=True)
        models = dict.fromkeys(item.model for item in batch.items if item.model)
        for name in models:
            items = [item for item in batch.items if item.model == name]
            if not self._is_held(name, items[0].edition):
                self._bring(batch, name, items, given)
        return given

    def _is_held(self, model: str, edition: str) -> bool:
        """Whoever has it in memory needs no files, unless they are others by now."""
        held = [runner.models.get(model) for runner in self._runners()]
        return bool(held) and all(
            one is not None and edition in ("", one.edition) for one in held
        )

    def _bring(
        self,
        batch: OrderBatch,
        name: str,
        items: list[Item],
        given: Delivered,
        *,
        is_all: bool = False,
    ) -> None:
        def check() -> None:
            gone = batch.dropped
            if batch.is_recalled or all(item.key in gone for item in items):
                raise Stopped

        def tell(share: float, text: str) -> None:
            started = [(*item.key, time.time()) for item in items] if is_all else []
            progress = {item.key: (share, text) for item in items}
            self._tell(Notes(started=started, progress=progress))

        try:
            edition = items[0].edition
            brought = self._fetch.bring(name, tell, check, edition)
        except Stopped:
            self._take_out(batch, items, given, lambda item: _ended(batch, item))
            return
        except (Unfetched, CorruptModel) as error:
            fault = AttemptError(error.code, clean(error.message))
            self._take_out(batch, items, given, lambda item: _failed(item, fault))
            return
        except OSError as error:
            text = f"model {name} cannot be kept here: {error}"
            fault = AttemptError(Unfetched.code, clean(text))
            self._take_out(batch, items, given, lambda item: _failed(item, fault))
            return
        given.held.append(brought)
        for item in items:
            # What is here is what will be loaded, whatever the catalogue has.
            item.edition = brought.note.bill.edition if brought.note else ""
        if is_all:
            self._take_out(batch, items, given, lambda item: _done(item, name, brought))

    def _take_out(
        self,
        batch: OrderBatch,
        items: list[Item],
        given: Delivered,
        end: Callable[[Item], AttemptOutcome],
    ) -> None:
        given.outcomes += [end(item) for item in items]
        gone = {item.key for item in items}
        batch.items = [item for item in batch.items if item.key not in gone]


def _ended(batch: OrderBatch, item: Item) -> AttemptOutcome:
    return cancelled(item) if item.key in batch.dropped else returned(item)


def _failed(item: Item, fault: AttemptError) -> AttemptOutcome:
    return AttemptOutcome(item.task_id, item.attempt, "failed", error=fault)


def _done(item: Item, name: str, brought: FetchedModel) -> AttemptOutcome:
    note = brought.note
    if note is None:
        why = brought.trouble or "the catalogue has no such model"
        return _failed(
            item, AttemptError(Unfetched.code, clean(f"model {name}: {why}"))
        )
    told = {"model": name, "folder": note.folder, "size_bytes": note.bill.size}
    raw = Raw(msgspec.json.encode(told))
    return AttemptOutcome(
        item.task_id, item.attempt, "completed", raw, None, time.time()
    )

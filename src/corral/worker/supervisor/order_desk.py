"""Takes orders in, has them executed and reported, and knows what the worker holds.

Says in the worker's log which tasks those are, each under the id of its request.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from corral.engine.envelope import verify
from corral.errors import CorralError, WorkerError
from corral.wire.agent import TimeLimits
from corral.wire.orders import AttemptError, AttemptOutcome, Item, Key, Order
from corral.worker.pool.runner_pool import RunnerPool, Unrunnable
from corral.worker.protocol import ExecFrame
from corral.worker.supervisor.batch import OrderBatch, cancelled, returned
from corral.worker.supervisor.execution import Execution
from corral.worker.supervisor.leftovers import Leftovers
from corral.worker.supervisor.model_delivery import Delivered, Delivery
from corral.worker.supervisor.reports import Notes, Reporter
from corral.worker.text import clean

log = logging.getLogger(__name__)


_task_log = logging.getLogger("corral.worker")
_FOLLOWED_S = 1.0
_LOUD = frozenset({"failed", "timed_out", "lost"})
MEMORY = 100_000
AHEAD_S = 1.0
"""So long an order that was sent ahead waits for its turn, then others may do it."""


_decode = msgspec.json.Decoder(Order).decode


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """What a batch has on this node's disk: models before it, what it leaves after."""

    delivery: Delivery | None = None
    leftovers: Leftovers | None = None


class OrderDesk:
    """One worker incarnation's orders. Safe to use from any thread."""

    def __init__(
        self,
        worker_id: str,
        pool: RunnerPool,
        reporter: Reporter,
        on_change: Callable[[], None],
        limits: TimeLimits | None = None,
        files: BatchFiles | None = None,
    ) -> None:
        self._worker_id = worker_id
        self._limits = limits or TimeLimits()
        self._files = files or BatchFiles()
        self._incarnation = ""
        self._secret = ""
        self._pool = pool
        self._reporter = reporter
        self._on_change = on_change
        self._lock = threading.Lock()
        self._held: dict[Key, OrderBatch] = {}
        self._cards: dict[Key, str] = {}
        self._seen: dict[Key, None] = {}
        self._is_closing = False
        self._emptied = threading.Condition(self._lock)

    def open(self, incarnation: str, secret: str) -> None:
        """From now on, take orders signed for this incarnation."""
        self._incarnation, self._secret = incarnation, secret

    @property
    def held(self) -> list[Key]:
        """Attempts taken and not yet answered for."""
        with self._lock:
            return list(self._held)

    @property
    def cards(self) -> dict[str, list[str]]:
        """The GPUs that attempts were given, by task."""
        with self._lock:
            return {key[0]: ids.split(",") for key, ids in self._cards.items()}

    def serve(
        self, signed: Mapping[str, Any], may_ask: Callable[[], bool] = lambda: True
    ) -> None:
        """Execute an order, report it, go on with the one in the answer."""
        batch = self._admit(signed)
        while batch is not None:
            items = list(batch.items)
            notes = self._execute_surely(batch)
            log_finished(items, notes.outcomes)
            try:
                answer = self._reporter.finish(
                    notes,
                    wants_order=not self._is_closing and may_ask(),
                    error=self._pool.error,
                )
            except WorkerError as error:
                log.warning("results are not reported: %s", error.message)
                return
            batch = self._admit(answer.order) if answer.order else None

    def drop(self, keys: Iterable[Key]) -> None:
        """These attempts are no longer ours: stop them, and never start them."""
        for key in keys:
            with self._lock:
                # Remembered also when it has not come yet: orders may be late.
                self._remember(key)
                batch = self._held.get(key)
            if batch is not None:
                batch.drop(key)

    def run_beside(self, command: ExecFrame) -> None:
        """Run a command beside an attempt; one we do not have gets no answer."""
        with self._lock:
            batch = self._held.get((command.task_id, command.attempt))
        if batch is not None:
            batch.send(command)

    def cut_off(self, seconds: float) -> None:
        """Our agent has not reached the manager for so long.

        Then other workers may soon be given what we hold: what must never run
        twice at a time is stopped here before that.
        """
        if seconds < self._limits.no_overlap_kill_s:
            return
        with self._lock:
            batches = set(self._held.values())
        self.drop(
            item.key for b in batches for item in b.items if item.overlap == "never"
        )

    def release(self, outcomes: list[AttemptOutcome], drops: Iterable[Key]) -> None:
        """The manager knows these outcomes now, and wants `drops` gone."""
        with self._lock:
            for outcome in outcomes:
                self._held.pop((outcome.task_id, outcome.attempt), None)
                self._cards.pop((outcome.task_id, outcome.attempt), None)
            if not self._held:
                self._emptied.notify_all()
        if outcomes:
            self._on_change()
        self.drop(drops)

    def close(self) -> None:
        """Finish what runs, hand back the rest, take nothing more."""
        self._is_closing = True
        self._pool.close()
        with self._lock:
            batches = set(self._held.values())
        for batch in batches:
            batch.recall()

    def wait_empty(self) -> None:
        """Block until everything held has been reported."""
        with self._emptied:
            while self._held:
                self._emptied.wait()

    def _admit(self, signed: Mapping[str, Any]) -> OrderBatch | None:
        body = verify(signed, self._secret) if isinstance(signed, Mapping) else None
        if body is None:
            log.warning("dropped an order whose signature is not our manager's")
            return None
        order, faults = _read(body)
        if order is None:
            log.error("dropped an order that cannot be read")
            return None
        mine = (self._worker_id, self._incarnation)
        if (order.worker_id, order.incarnation) != mine:
            log.warning("dropped order %s of another incarnation", order.id)
            return None
        batch = self._take(order)
        if faults:
            self._reporter.tell(Notes(outcomes=faults))
        return batch

    def _take(self, order: Order) -> OrderBatch | None:
        with self._lock:
            fresh = [item for item in order.items if item.key not in self._seen]
            if len(fresh) < len(order.items):
                count = len(order.items) - len(fresh)
                log.warning("dropped %d repeated items of order %s", count, order.id)
            if not fresh:
                return None
            batch = OrderBatch(fresh, order.unload)
            for item in fresh:
                self._remember(item.key)
                self._held[item.key] = batch
                if ids := (item.variables or {}).get("CORRAL_GPUS"):
                    self._cards[item.key] = ids
        self._on_change()
        log_received(fresh)
        return batch

    def _remember(self, key: Key) -> None:
        self._seen[key] = None
        if len(self._seen) > MEMORY:
            del self._seen[next(iter(self._seen))]

    def _execute_surely(self, batch: OrderBatch) -> Notes:
        try:
            while True:
                notes = self._execute(batch)
                if not batch.later:
                    return notes
                # Those with other code may take long: what is done is told first.
                batch.items = batch.take_later()
                self._reporter.tell(notes)
        except BaseException:
            # A fault of ours must not keep attempts that nobody works on.
            left = [*batch.items, *batch.take_later()]
            self._reporter.tell(Notes(outcomes=[returned(item) for item in left]))
            raise

    def _execute(self, batch: OrderBatch, *, solo: bool = False) -> Notes:
        """One runner's part; a batch that died as a whole goes again, one by one."""
        unwanted = Notes(outcomes=[cancelled(item) for item in batch.take_dropped()])
        given = Delivered()
        if self._files.delivery is not None and batch.items:
            given = self._files.delivery.prepare(batch)
            unwanted.outcomes += given.outcomes
        try:
            return self._run(batch, unwanted, given, solo=solo)
        finally:
            given.release()

    def _run(
        self, batch: OrderBatch, unwanted: Notes, given: Delivered, *, solo: bool
    ) -> Notes:
        if not batch.items:
            return unwanted
        bundle = None
        if self._pool.takes_bundles:
            bundle = batch.set_apart(self._pool.bundle_of)
        try:
            # Items that died together are told apart here, however long that takes.
            patience_s = None if solo else AHEAD_S
            runner = self._pool.acquire(bundle, batch.items[0].model, patience_s)
        except Unrunnable as error:
            unwanted.outcomes += [failed(item, error) for item in batch.items]
            return unwanted
        except WorkerError:
            unwanted.outcomes += [returned(item) for item in batch.items]
            return unwanted
        try:
            self._pool.unload(batch.unload, besides=runner)
            execution = Execution(
                batch,
                runner,
                self._reporter.tell,
                solo=solo,
                overrun_s=self._limits.overrun_s,
                model_load_s=self._limits.model_load_s,
            )
            notes = execution.run()
            given.explain(notes)
            if self._files.leftovers is not None and execution.left:
                self._files.leftovers.keep(execution.left)
        finally:
            self._pool.release(runner)
        notes.merge(unwanted)
        if execution.retry_alone:
            batch.items = execution.retry_alone
            notes.merge(self._execute(batch, solo=True))
        return notes


def failed(item: Item, error: CorralError) -> AttemptOutcome:
    fault = AttemptError(error.code, clean(error.message))
    return AttemptOutcome(item.task_id, item.attempt, "failed", error=fault)


def _read(body: str) -> tuple[Order | None, list[AttemptOutcome]]:
    """The order, and failures for items that no decoder of ours can carry."""
    try:
        return _decode(body), []
    except msgspec.MsgspecError as error:
        problem = str(error)
    try:
        told = msgspec.convert(json.loads(body), dict[str, Any])
        raws = msgspec.convert(told.get("items"), list[dict[str, Any]])
        order = msgspec.convert(told | {"items": []}, Order)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None, []
    bad: list[AttemptOutcome] = []
    for raw in raws:
        try:
            order.items.append(msgspec.json.decode(json.dumps(raw), type=Item))
        except msgspec.MsgspecError:
            text = f"the payload cannot be read: {problem}"
            fault = AttemptError("bad_payload", text, is_final=True)
            bad.append(
                AttemptOutcome(
                    str(raw["task_id"]), int(raw["attempt"]), "failed", error=fault
                )
            )
    return order, bad


def log_received(items: Sequence[Item]) -> None:
    """These attempts have come in an order."""
    if _task_log.isEnabledFor(logging.DEBUG):
        for item in items:
            _task_log.debug("task_received", extra=_told(item))


def log_finished(items: Sequence[Item], outcomes: Sequence[AttemptOutcome]) -> None:
    """These outcomes are about to be reported, of some or all of the attempts."""
    says_all = _task_log.isEnabledFor(logging.DEBUG)
    known: dict[tuple[str, int], Item] | None = None
    for outcome in outcomes:
        is_told = outcome.duration_s >= _FOLLOWED_S or outcome.kind in _LOUD
        if not (is_told or says_all):
            continue
        known = {item.key: item for item in items} if known is None else known
        item = known.get((outcome.task_id, outcome.attempt))
        if item is not None:
            level = logging.INFO if is_told else logging.DEBUG
            _task_log.log(level, "task_finished", extra=_told(item) | _ended(outcome))


def _told(item: Item) -> dict[str, Any]:
    told: dict[str, Any] = {
        "task_id": item.task_id,
        "attempt": item.attempt,
        "task_type": item.job_type,
    }
    if item.request_id:
        told["request_id"] = item.request_id
    return told


def _ended(outcome: AttemptOutcome) -> dict[str, Any]:
    told: dict[str, Any] = {
        "outcome": outcome.kind,
        "duration_s": round(outcome.duration_s, 6),
    }
    if outcome.error is not None:
        told["error"] = outcome.error.message[:500]
    return told

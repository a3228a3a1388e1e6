"""Keeps a number of runners alive and hands them out, first come, first served.

Of a class that shares its runner there is only one, and its lanes are handed out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection

from corral.core.backoff import Backoff
from corral.core.models.model import MemoryLeak
from corral.errors import CorralError, WorkerError
from corral.process.group import say_exit
from corral.process.keep_alive import Restarts
from corral.wire.orders import Item
from corral.worker.pool.code_bundle import Bundle
from corral.worker.pool.runner_process import Lane, RunnerProcess, RunnerSpec
from corral.worker.protocol import UnloadFrame

log = logging.getLogger(__name__)

_RESTARTS = Backoff(0.5, 30.0)
UNLOAD_S = 30.0
BUSY = "its runners are busy for longer than was thought"
_LOOK_S = 0.5


class Unrunnable(CorralError):
    """The code of a task cannot be run on this node; trying again is of no use."""

    code = "bad_code"


class RunnerPool:
    """`on_change` is called, outside any lock, when state or error may differ."""

    takes_bundles = False

    def __init__(
        self, spec: RunnerSpec, size: int, on_change: Callable[[], None]
    ) -> None:
        self._spec = spec
        self._size = size
        self._on_change = on_change
        self._changed = threading.Condition()
        self._live: set[RunnerProcess] = set()
        self._idle: deque[Lane] = deque()
        self._lanes: int | None = None
        """How many lanes a runner has, once the first has told."""
        self._line: deque[object] = deque()
        self._closing = threading.Event()
        self._error: str | None = None
        self.failures = 0
        """Starts that failed while no runner was ready, and deaths without a task
        finished in between. The agent counts them: its breaker is the one judge."""
        self.fault: str | None = None
        """What the last of these failures was."""
        self.finished = 0
        """Batches that a runner survived, whatever became of their tasks."""
        self.leaks: tuple[int, MemoryLeak | None] = (0, None)
        """How many runners had lost memory and were started anew, and what the last
        of these had lost."""
        self._counted_in_a_row = 0
        self._has_credit = True
        self._keepers: list[threading.Thread] = []

    def start(self, spec: RunnerSpec | None = None) -> None:
        """Start every runner, each in the care of a thread that stays with it."""
        self._spec = spec or self._spec
        for number in range(self._size):
            # The keeper outlives all its runners, see `Restarts.keep`.
            name = f"keeper-{number}"
            does = self._keep_more if number else self._keep
            keeper = threading.Thread(target=does, name=name, daemon=True)
            self._keepers.append(keeper)
            keeper.start()

    @property
    def error(self) -> str | None:
        """Why no runner is usable, once one has failed to start."""
        with self._changed:
            return None if self._has_ready() else self._error

    @property
    def is_ready(self) -> bool:
        with self._changed:
            return self._has_ready()

    @property
    def pids(self) -> list[int]:
        return sorted(runner.pid for runner in self.runners)

    @property
    def runners(self) -> list[RunnerProcess]:
        """Those that live, busy or not."""
        with self._changed:
            return [runner for runner in self._live if not runner.is_dead]

    def bundle_of(self, item: Item) -> Bundle | None:
        """The code a task brings along; here that is nothing to look at."""
        return None

    def acquire(
        self,
        bundle: Bundle | None = None,
        model: str | None = None,
        patience_s: float | None = None,
    ) -> Lane:
        """A ready runner, or lane, of one's own; waits for a turn while they are busy.

        Of several that are free, one that has the model in memory. Without a patience
        it waits for as long as they are.

        Raises:
            Unrunnable: the bundle is the reason why there is none.
            WorkerError: no runner can start, or the worker is closing, or others are
                busy for longer than the patience.
        """
        ends = None if patience_s is None else time.monotonic() + patience_s
        ticket = object()
        with self._changed:
            self._line.append(ticket)
            try:
                while True:
                    self._refuse_if_hopeless()
                    if self._idle and self._line[0] is ticket:
                        return self._hand_out(model)
                    left_s = None if ends is None else ends - time.monotonic()
                    # One that is being started will be free in a moment.
                    if left_s is not None and left_s <= 0 and self._has_ready():
                        raise WorkerError(BUSY)
                    self._changed.wait(None if left_s is None else max(left_s, _LOOK_S))
            finally:
                self._line.remove(ticket)
                self._changed.notify_all()

    def release(self, lane: Lane) -> None:
        with self._changed:
            # Its end has been seen by whoever had it: nobody else would see it.
            if lane.runner in self._live and not lane.runner.is_dead:
                self._idle.append(lane)
                self._note_finished()
                self._changed.notify_all()
        self._renew()

    def _renew(self) -> None:
        """End runners that have lost memory, as soon as they are free.

        Their keepers start others; what they held is loaded again when it is needed.
        """
        with self._changed:
            leaking = {
                lane.runner for lane in self._idle if lane.runner.leak is not None
            }
            gone = [runner for runner in leaking if self._is_free(runner)]
            for runner in gone:
                self._retire(runner)
                runner.note_stop()
                self.leaks = (self.leaks[0] + 1, runner.leak)
        for runner in gone:
            log.warning("runner %d is started anew: %s", runner.pid, say(runner.leak))
            runner.kill()

    def _is_free(self, runner: RunnerProcess) -> bool:
        return all(lane in self._idle for lane in runner.lanes)

    def _retire(self, runner: RunnerProcess) -> None:
        for lane in runner.lanes:
            if lane in self._idle:
                self._idle.remove(lane)

    def close(self) -> None:
        """Hand out no more runners; those handed out finish."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()

    def kill(self) -> None:
        """End every runner now, and start none again."""
        self.close()
        with self._changed:
            live = list(self._live)
        for runner in live:
            runner.kill()

    def join(self) -> None:
        """After `kill`: block until every runner is gone."""
        for keeper in self._keepers:
            keeper.join()

    def _hand_out(self, model: str | None) -> Lane:
        has_it = (lane for lane in self._idle if model in lane.runner.models)
        lane = next(has_it, self._idle[0])
        self._idle.remove(lane)
        lane.runner.was_used = True
        return lane

    def unload(self, models: Collection[str], besides: Lane) -> None:
        """Have other runners drop these; those that are free have done it on return.

        One that is busy does it when it is through.
        """
        if not models:
            return
        holding = [
            runner
            for runner in self.runners
            if runner is not besides.runner
            and not runner.models.keys().isdisjoint(models)
        ]
        for runner in holding:
            runner.send(UnloadFrame(list(models)))
        with self._changed:
            free = [runner for runner in holding if self._is_free(runner)]
            self._changed.wait_for(
                lambda: all(_is_rid(runner, models) for runner in free), UNLOAD_S
            )

    def _on_models(self) -> None:
        self._renew()
        with self._changed:
            self._changed.notify_all()
        self._on_change()

    def _refuse_if_hopeless(self) -> None:
        if self._closing.is_set():
            raise WorkerError("the worker is closing")
        if self._error is not None and not self._has_ready():
            raise WorkerError(self._error)

    def _has_ready(self) -> bool:
        return any(runner.is_ready and not runner.is_dead for runner in self._live)

    def _keep_more(self) -> None:
        """Keep another runner, if the first has no lanes."""
        with self._changed:
            self._changed.wait_for(lambda: self._lanes or self._closing.is_set())
        if self._lanes == 1:
            self._keep()

    def _keep(self) -> None:
        restarts = Restarts(_RESTARTS)

        def live() -> float:
            fault = self._live_once()
            if fault is None:
                restarts.reset()
                return 0.0
            pause_s = restarts.end()
            self._tally(restarts.failures, fault)
            return pause_s

        restarts.keep(live, lambda pause_s: not self._closing.wait(pause_s))

    def _live_once(self) -> str | None:
        """Run one runner to its end; why its life was of no use, if it was of none."""
        try:
            runner = RunnerProcess(
                self._spec, self._welcome, self._on_models, self._size, self._on_shape
            )
        except OSError as error:
            return self.fail(f"no runner process can be started: {error}")
        except WorkerError as error:
            return self.fail(error.message)
        with self._changed:
            self._live.add(runner)
        if self._closing.is_set():
            runner.kill()  # it was on its way while the others were killed
        code = runner.reap()
        with self._changed:
            self._live.discard(runner)
            self._retire(runner)
            self._changed.notify_all()
        if not self._closing.is_set():
            log.warning("runner %d %s", runner.pid, say_exit(code))
        if not runner.is_ready:
            ended = f"the runner {say_exit(code)} while it was starting"
            return self.fail(runner.fault or ended, runner.trace)
        if runner.was_used and not runner.was_stopped:
            self._note_death(f"the runner {say_exit(code)} under a task")
        self._on_change()
        return None if runner.was_used else f"the idle runner {say_exit(code)}"

    def _tally(self, in_a_row: int, fault: str) -> None:
        """Count a keeper's failed start; those of one round count as one."""
        with self._changed:
            is_known = in_a_row <= self._counted_in_a_row
            if self._closing.is_set() or self._has_ready() or is_known:
                return
            self._counted_in_a_row = in_a_row
            self._count(fault)
        self._on_change()

    def _note_death(self, fault: str) -> None:
        """A task may kill its runner once; again before any was finished counts."""
        with self._changed:
            if self._closing.is_set():
                return
            if not self._has_credit:
                self._count(fault)
            self._has_credit = False

    def _note_finished(self) -> None:
        self.finished += 1
        self._has_credit = True

    def _count(self, fault: str) -> None:
        self.failures += 1
        self.fault = fault

    def _on_shape(self, lanes: int) -> None:
        with self._changed:
            self._lanes = lanes
            self._changed.notify_all()

    def _welcome(self, runner: RunnerProcess) -> None:
        with self._changed:
            self._error = None
            self._counted_in_a_row = 0
            self._live.add(runner)  # this may come before the keeper does it
            self._idle.extend(runner.lanes)
            self._changed.notify_all()
        self._on_change()

    def fail(
        self, message: str, trace: str | None = None, *, counts: bool = False
    ) -> str:
        """No runner can be started now, for this reason; forgotten when one can."""
        with self._changed:
            is_news = message != self._error
            self._error = message
            if counts:
                self._count(message)
            self._changed.notify_all()
        if is_news:
            log.error("the worker class cannot start: %s", trace or message)
        self._on_change()
        return message


def say(leak: MemoryLeak | None) -> str:
    if leak is None:
        return "it has lost nothing"
    return (
        f"model {leak.model} of {leak.size_mb:g} MB was unloaded, and "
        f"{leak.left_mb:g} MB did not come back"
    )


def _is_rid(runner: RunnerProcess, models: Collection[str]) -> bool:
    return runner.is_dead or runner.models.keys().isdisjoint(models)

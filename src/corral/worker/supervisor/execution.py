"""One order on one runner, or lane of one, from the first frame to the last outcome.

It enforces timeouts, cancels and the overrun rule, and survives the runner's death.
It does no I/O but frames; what must be told before the end goes to `tell`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from corral.process.group import say_exit
from corral.wire.orders import (
    AttemptError,
    AttemptOutcome,
    EmittedOutput,
    Item,
    LogLines,
)
from corral.worker.pool.runner_process import Event, Exited, Lane
from corral.worker.protocol import (
    CancelFrame,
    ChunksFrame,
    DoneFrame,
    EndFrame,
    LeftFilesFrame,
    LogFrame,
    ModelLoadFrame,
    ModelsFrame,
    ProgressFrame,
    RunFrame,
    StopGraceFrame,
)
from corral.worker.shared_counters import NONE, WHOLE
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.reports import LOG_BYTES, Notes

OVERRUN_S = 0.05
STARTED_S = 0.1
CANCEL_GRACE_S = 0.5
MODEL_LOAD_S = 300.0
LONGEST_GRACE_S = 630.0
START_LIMIT_S = 30.0
NOTES_S = 0.2
LOOK_S = 0.01
IDLE_S = 1.0

_now = time.monotonic


class Execution:
    """Runs `batch` on `lane`; `tell` gets notes that cannot wait for the end."""

    def __init__(
        self,
        batch: OrderBatch,
        lane: Lane,
        tell: Callable[[Notes], None],
        *,
        solo: bool = False,
        overrun_s: float = OVERRUN_S,
        model_load_s: float = MODEL_LOAD_S,
    ) -> None:
        self._batch = batch
        self._items = batch.items
        self._lane = lane
        self._tell = tell
        self._solo = solo
        self._overrun_s = overrun_s
        self._model_load_s = model_load_s
        self._loading: tuple[str, float] | None = None
        self._load_s = 0.0
        self._index = {item.key: i for i, item in enumerate(batch.items)}
        self._outcomes: dict[int, AttemptOutcome] = {}
        self._handed_back: set[int] = set()
        self._cancel_sent: set[int] = set()
        self._verdicts: dict[int, AttemptOutcome] = {}
        self._notes = Notes()
        self._printed = 0
        self._began = self._noted = _now()
        self._current = NONE
        self._since = self._began
        self._told: set[int] = set()
        self._is_limited = False
        # What was taken as a whole goes on here, however long: handed back, whoever
        # spoils the batch would spoil the next one, too.
        self._may_overrun = not solo
        self._kill_at: float | None = None
        self._grace_s: dict[int, float] = {}
        self._late_at: dict[int, float] = {}
        self._is_killed = False
        self.left: list[LeftFilesFrame] = []
        self.retry_alone: list[Item] = []
        """Items of a batch that died as a whole: run each alone, on a new runner."""

    def run(self) -> Notes:
        """Everything that is left to report; never raises for what user code does."""
        self._lane.cells.reset()
        self._batch.attach(self._lane)
        self._lane.send(RunFrame(self._items, self._solo, self._batch.take_unload()))
        self._began = self._noted = _now()
        try:
            while not self._take(self._lane.next_event(self._patience())):
                self._tick(_now())
        finally:
            self._batch.attach(None)
        return self._settle()

    def _settle(self) -> Notes:
        retried = {self._index[item.key] for item in self.retry_alone}
        for index in range(len(self._items)):
            if index in self._handed_back or index in retried:
                continue
            outcome = self._outcomes.get(index) or self._verdicts.get(index)
            given_back = self._batch.give_back(self._items[index])
            self._notes.outcomes.append(outcome or given_back)
        return self._notes

    def _take(self, event: Event | None) -> bool:
        """Use one event; true when it was the last."""
        if isinstance(event, DoneFrame):
            for outcome in event.outcomes:
                self._keep(outcome)
            if event.is_early:
                self._tell_early()
        elif isinstance(event, EndFrame):
            return True
        elif isinstance(event, Exited):
            self._bury(event)
            return True
        elif isinstance(event, ProgressFrame):
            self._notes.note_progress(event)
        elif isinstance(event, LogFrame):
            self._keep_lines(event)
        elif isinstance(event, ChunksFrame):
            self._pass_on(event)
        elif isinstance(event, StopGraceFrame):
            self._grant(event)
        elif isinstance(event, LeftFilesFrame) and event.key in self._index:
            self.left.append(event)
        elif isinstance(event, ModelLoadFrame | ModelsFrame):
            self._note_load(event, _now())
        return False

    def _note_load(self, event: ModelLoadFrame | ModelsFrame, now: float) -> None:
        """A load is no part of its task's time, nor of its order's."""
        self._observe(now)
        if self._loading is not None:
            took_s = now - self._loading[1]
            self._load_s += took_s
            self._began += took_s
        self._loading = (
            (event.model, now) if isinstance(event, ModelLoadFrame) else None
        )

    def _ran_s(self, now: float) -> float:
        """How long what runs now has had, without loads."""
        until = now if self._loading is None else self._loading[1]
        return until - self._since - self._load_s

    def _keep(self, outcome: AttemptOutcome) -> None:
        key = (outcome.task_id, outcome.attempt)
        index = self._index.get(key)
        if index is None:
            return
        if key in self._batch.dropped and outcome.kind != "cancelled":
            outcome = AttemptOutcome(
                *key, "cancelled", started_at=outcome.started_at,
                duration_s=outcome.duration_s, load_s=outcome.load_s,
            )  # fmt: skip
        if index in self._late_at:
            # It stopped when asked to; what it has to show is kept.
            late = self._verdicts[index]
            late.result, outcome = outcome.result, late
        self._outcomes[index] = outcome
        self._notes.progress.pop(key, None)

    def _tell_early(self) -> None:
        """Who is done in a batch that goes on does not wait for the others."""
        early = sorted(self._outcomes.keys() - self._handed_back)
        self._handed_back.update(early)
        self._notes.outcomes.extend(self._outcomes[index] for index in early)
        self._flush(_now())

    def _grant(self, told: StopGraceFrame) -> None:
        index = self._index.get((told.task_id, told.attempt))
        if index is not None:
            self._grace_s[index] = min(max(told.seconds, 0.0), LONGEST_GRACE_S)

    def _keep_lines(self, log: LogFrame) -> None:
        key, printed = (log.task_id, log.attempt), self._batch.printed
        printed[key] = printed.get(key, 0) + log.count
        piece = LogLines(*key, printed[key], log.lines)
        if key not in self._index:
            self._lane.backpressure.leave(piece.size)
            return
        self._notes.note_lines(piece, self._lane.backpressure)
        self._printed += piece.size
        if self._printed > LOG_BYTES:
            self._flush(_now())

    def _pass_on(self, chunks: ChunksFrame) -> None:
        """Somebody may be watching: output is told at once."""
        index = self._index.get(chunks.key)
        if index is None or index in self._outcomes:
            self._lane.backpressure.leave(chunks.size)
            return
        if len(self._items) > 1:
            self._batch.keep(chunks)
        piece = EmittedOutput(*chunks.key, chunks.first, chunks.values)
        self._tell(Notes(output=[(piece, self._lane.backpressure)]))

    def _bury(self, end: Exited) -> None:
        """The runner is dead: who was running, and whose fault is it?"""
        if self._is_killed:
            return
        if end.current == WHOLE:
            again = self._batch.again
            self.retry_alone = [again(self._items[i]) for i in self._open_ones()]
        elif end.current in self._late_at:
            return  # judged already; it did not survive its own end
        elif end.current != NONE and end.current in self._open_ones():
            ended = f"the worker's process {say_exit(end.code)} while running this task"
            self._judge(end.current, "lost", AttemptError("worker_died", ended))

    # Time -------------------------------------------------------------------

    def _patience(self) -> float:
        """How long nothing needs to be looked at if no event comes."""
        now = _now()
        if self._is_killed:
            return IDLE_S
        if self._current == NONE:
            return LOOK_S
        wakes = [now + IDLE_S]
        if self._loading is not None:
            wakes.append(self._loading[1] + self._model_load_s)
        elif self._may_overrun and not self._is_limited:
            wakes.append(self._began + self._overrun_s)
        if self._current not in self._told:
            wakes.append(self._since + STARTED_S)
        if self._kill_at is not None:
            wakes.append(self._kill_at)
        done = self._outcomes
        wakes += [at for i, at in self._late_at.items() if i not in done]
        timeout = self._timeout()
        is_timed = self._kill_at is None and not self._late_at and not self._loading
        if is_timed and timeout is not None:
            wakes.append(self._since + self._load_s + timeout)
        if self._notes:
            wakes.append(self._noted + NOTES_S)
        return max(min(wakes) - now, 0.001)

    def _tick(self, now: float) -> None:
        self._observe(now)
        if self._is_killed:
            return
        self._check_drops(now)
        self._check_limits(now)
        if self._batch.is_recalled or self._is_over(now):
            self._hand_back()
        if now - self._since >= STARTED_S:
            self._note_started()
        if self._notes and now - self._noted >= NOTES_S:
            self._flush(now)

    def _is_over(self, now: float) -> bool:
        """Has it taken so long that others may do the rest?"""
        if not self._may_overrun or self._loading or self._current == NONE:
            return False
        return now - self._began >= self._overrun_s

    def _observe(self, now: float) -> None:
        current = self._lane.cells.current
        if current == self._current:
            return
        if self._current == NONE:
            self._began = now
        if current == WHOLE:
            self._may_overrun = False
        self._current, self._since = current, now
        self._loading, self._load_s = None, 0.0

    def _running(self) -> list[int]:
        """Indices that user code has in hand right now."""
        if self._current == WHOLE:
            return self._open_ones()
        is_open = self._current >= 0 and self._current not in self._outcomes
        return [self._current] if is_open else []

    def _open_ones(self) -> list[int]:
        done, gone = self._outcomes, self._handed_back
        return [i for i in range(len(self._items)) if i not in done and i not in gone]

    def _timeout(self) -> float | None:
        limits = (self._items[i].timeout_s for i in self._running())
        return min((limit for limit in limits if limit is not None), default=None)

    # Rules ------------------------------------------------------------------

    def _check_drops(self, now: float) -> None:
        if not self._batch.dropped:
            return
        keys = tuple(self._batch.dropped)
        dropped = {self._index[key] for key in keys if key in self._index}
        for index in dropped - self._cancel_sent - self._outcomes.keys():
            self._cancel_sent.add(index)
            self._lane.send(CancelFrame(self._items[index].task_id))
        running = self._running()
        # A batch that user code took as a whole is only stopped when nobody wants
        # any of it.
        if not running or not dropped.issuperset(running):
            self._kill_at = None
        elif self._kill_at is None:
            grace_s = max(self._grace_s.get(i, CANCEL_GRACE_S) for i in running)
            self._kill_at = now + grace_s
        elif now >= self._kill_at:
            for index in running:
                self._judge(index, "cancelled", None)
            self._kill()

    def _check_limits(self, now: float) -> None:
        ran = self._ran_s(now)
        if self._current == NONE:
            if ran > START_LIMIT_S:
                self._kill()
            return
        if self._loading and now - self._loading[1] >= self._model_load_s:
            self._end_load(self._loading[0])
            return
        late = [
            i
            for i in self._running()
            if (limit := self._items[i].timeout_s) is not None and ran >= limit
        ]
        for index in late:
            if index not in self._late_at:
                self._ask_to_end(index, now)
        if any(now >= self._late_at[index] for index in late):
            self._kill()

    def _end_load(self, model: str) -> None:
        limit_s = self._model_load_s
        text = f"the model {model} took longer than {limit_s:g} s to load"
        for index in self._running():
            self._judge(index, "timed_out", AttemptError("model_load_timeout", text))
        self._kill()

    def _ask_to_end(self, index: int, now: float) -> None:
        """Its time is up: judged now, it may have a moment to clean up."""
        item = self._items[index]
        text = f"the task ran longer than its timeout of {item.timeout_s:g} s"
        self._judge(index, "timed_out", AttemptError("timeout", text))
        grace_s = left_s = self._grace_s.get(index, 0.0)
        # That one of a batch has stopped is seen at its end: till then others go on.
        if grace_s and not self._verdicts.keys() >= set(self._running()):
            left_s = LONGEST_GRACE_S
        self._late_at[index] = now + left_s
        if grace_s:
            self._lane.send(CancelFrame(item.task_id, "timeout"))

    def _hand_back(self) -> None:
        """Let nothing more of this batch start, and return it at once."""
        if later := self._batch.take_later():
            self._tell(Notes([self._batch.give_back(item) for item in later]))
        if not self._is_limited and self._current != WHOLE:
            self._is_limited = True
            self._lane.cells.stop_after_current()
            self._observe(_now())
        # Without a current task the batch may be over, its outcomes still on the
        # way: only its end then tells what has not run.
        if self._is_limited and not self._handed_back and self._current >= 0:
            rest = [i for i in self._open_ones() if i > self._current]
            self._handed_back.update(rest)
            if rest:
                given_back = [self._batch.give_back(self._items[i]) for i in rest]
                self._tell(Notes(outcomes=given_back))

    def _note_started(self) -> None:
        if self._current in self._told:
            return
        self._told.add(self._current)
        at = time.time() - (_now() - self._since)
        for index in self._running():
            self._notes.started.append((*self._items[index].key, at))
        self._flush(_now())

    def _flush(self, now: float) -> None:
        notes, self._notes = self._notes, Notes()
        self._noted, self._printed = now, 0
        if notes:
            self._tell(notes)

    def _judge(self, index: int, kind: str, fault: AttemptError | None) -> None:
        ran = self._ran_s(_now())
        item = self._items[index]
        self._verdicts[index] = AttemptOutcome(
            item.task_id, item.attempt, kind, error=fault,
            started_at=time.time() - ran, duration_s=ran, load_s=self._load_s,
        )  # fmt: skip

    def _kill(self) -> None:
        self._is_killed = True
        self._lane.kill_on_purpose()

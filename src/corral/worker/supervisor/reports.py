"""Gathers what a worker has to tell its manager, and brings it there as reports, for as
long as it takes, and never twice.

A report keeps its number however often it is sent, so the manager can tell a
repetition. Results are kept in memory until they are answered.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, Raw

from corral.core.backoff import Backoff
from corral.core.nodes.worker import WorkerState
from corral.errors import WorkerError
from corral.process.keep_alive import Tries
from corral.wire.orders import (
    AttemptError,
    AttemptOutcome,
    EmittedOutput,
    Key,
    LogLines,
    ReportAnswer,
    SupervisorStart,
    WorkerReport,
)
from corral.wire.workers import Registration
from corral.worker.backpressure import Backpressure
from corral.worker.manager_link import Away, Fenced, ManagerLink, ReportRefused
from corral.worker.protocol import ExecFrame, ProgressFrame
from corral.worker.supervisor.held_models import RunnerModels

REPORT_BYTES = 8 << 20
# Less than of results: a manager may get as much from every worker at once.
LOG_BYTES = 256 << 10


@dataclass(slots=True)
class Notes:
    """Fields as in the report on the wire.

    `gates` are those the pieces of log came through, in the same order: they stay
    taken until the pieces have been delivered. Pieces of output have theirs beside
    them.
    """

    outcomes: list[AttemptOutcome] = field(default_factory=list)
    started: list[tuple[str, int, float]] = field(default_factory=list)
    progress: dict[Key, tuple[float, str]] = field(default_factory=dict)
    logs: list[LogLines] = field(default_factory=list)
    gates: list[Backpressure] = field(default_factory=list)
    output: list[tuple[EmittedOutput, Backpressure]] = field(default_factory=list)

    def __bool__(self) -> bool:
        told = self.outcomes or self.started or self.progress or self.logs
        return bool(told or self.output)

    def merge(self, later: Notes) -> None:
        self.outcomes += later.outcomes
        self.started += later.started
        self.progress.update(later.progress)
        self.logs += later.logs
        self.gates += later.gates
        for piece, gate in later.output:
            last = self.output[-1] if self.output else None
            if last is None or last[1] is not gate or not last[0].takes(piece):
                self.output.append((piece, gate))

    def note_progress(self, frame: ProgressFrame) -> None:
        key = (frame.task_id, frame.attempt)
        self.progress[key] = (frame.fraction, frame.message)

    def note_lines(self, piece: LogLines, gate: Backpressure) -> None:
        self.logs.append(piece)
        self.gates.append(gate)

    def take_lines(self, keys: Collection[Key]) -> Notes:
        """Take out the log and the output of these attempts."""
        own, rest = Notes(), Notes()
        for piece, gate in zip(self.logs, self.gates, strict=True):
            (own if piece.key in keys else rest).note_lines(piece, gate)
        self.logs, self.gates = rest.logs, rest.gates
        own.output = [pair for pair in self.output if pair[0].key in keys]
        self.output = [pair for pair in self.output if pair[0].key not in keys]
        return own

    def split(self) -> Notes | None:
        """Take from the front what makes one large enough report of its own.

        Output and lines first: nobody looks for more of them once the outcome is
        there.
        """
        if len(self.output) > 1 and sum(p.size for p, _ in self.output) > LOG_BYTES:
            part, self.output = Notes(output=self.output[:1]), self.output[1:]
            return part
        size = 0
        for count, piece in enumerate(self.logs, 1):
            size += piece.size
            if size > LOG_BYTES and (count < len(self.logs) or self.outcomes):
                part = Notes(logs=self.logs[:count], gates=self.gates[:count])
                self.logs, self.gates = self.logs[count:], self.gates[count:]
                return part
        size = 0
        for count, outcome in enumerate(self.outcomes, 1):
            if isinstance(outcome.result, Raw):
                size += len(memoryview(outcome.result))
            if size > REPORT_BYTES and count < len(self.outcomes):
                part = Notes(outcomes=self.outcomes[:count], logs=self.logs)
                part.gates, self.logs, self.gates = self.gates, [], []
                self.outcomes = self.outcomes[count:]
                return part
        return None

    def deliver(self) -> None:
        """The manager has it, or never will."""
        for piece, gate in zip(self.logs, self.gates, strict=True):
            gate.leave(piece.size)
        for told, gate in self.output:
            gate.leave(told.size)


log = logging.getLogger(__name__)

_PAUSES = Backoff(0.1, 5.0)

Drops = list[Key]


_encode = msgspec.json.Encoder().encode
_decode_answer = msgspec.json.Decoder(ReportAnswer).decode
_decode_registration = msgspec.json.Decoder(Registration).decode


class Reporter:
    """Reports of one worker incarnation.

    `finish` blocks until the manager has answered. `tell` returns at once: a thread
    sends what has gathered while its last report was on the way.

    `on_answer` gets the outcomes that the manager now knows, and the attempts it
    wants dropped; `on_exec` the commands to run beside attempts. `on_fenced` is
    called once, when this incarnation has ended.
    """

    def __init__(
        self,
        link: ManagerLink,
        worker_id: str,
        on_answer: Callable[[list[AttemptOutcome], Drops], None],
        on_fenced: Callable[[str], None],
        on_exec: Callable[[ExecFrame], None] = lambda _: None,
        runner_models: RunnerModels | None = None,
    ) -> None:
        self._link = link
        self._base = f"/workers/{worker_id}"
        self._incarnation = ""
        self._numbers = itertools.count(1)
        self._on_answer = on_answer
        self._on_fenced = on_fenced
        self._on_exec = on_exec
        self._runner_models = runner_models or RunnerModels(tuple)
        self._stopped = threading.Event()
        lock = threading.Lock()
        self._waiting = threading.Condition(lock)
        self._mailed = threading.Condition(lock)
        self._mailing: set[Key] = set()
        self._notes = Notes()
        self._state: tuple[WorkerState, str | None] | None = None
        self._is_rung = False
        self._thread = threading.Thread(target=self._mail, name="reporter", daemon=True)

    def register(self, pid: int, epoch: int) -> Registration:
        """Ask for an incarnation; waits for the manager while it is away.

        Raises:
            Fenced, ReportRefused: the manager does not want this worker.
        """
        body = _encode(SupervisorStart(pid, epoch))
        answer = self._send("/register", body)
        registration = _decode_registration(answer)
        self._incarnation = registration.incarnation
        self._thread.start()
        return registration

    def finish(
        self, notes: Notes, *, wants_order: bool, error: str | None
    ) -> ReportAnswer:
        """Report the end of an order; the answer may have the next one.

        Raises:
            WorkerError: reporting has been stopped, or the worker is fenced.
        """
        self._put_first_lines_first(notes)
        while (part := notes.split()) is not None:
            self._deliver(part, wants_order=False)
        state = (WorkerState.ERROR, error) if error is not None else None
        return self._deliver(notes, wants_order=wants_order, state=state)

    def _put_first_lines_first(self, notes: Notes) -> None:
        """What was told before must not be overtaken: an end ends the log as well."""
        with self._mailed:
            if not (self._mailing or self._notes.logs or self._notes.output):
                return
            keys = {(o.task_id, o.attempt) for o in notes.outcomes}
            while not keys.isdisjoint(self._mailing) and not self._stopped.is_set():
                self._mailed.wait()
            early = self._notes.take_lines(keys)
            notes.logs[:0], notes.gates[:0] = early.logs, early.gates
            notes.output[:0] = early.output

    def tell(self, notes: Notes) -> None:
        """Report soon, without waiting for it."""
        with self._waiting:
            self._notes.merge(notes)
            self._waiting.notify()

    def tell_state(self, state: WorkerState, error: str | None) -> None:
        with self._waiting:
            self._state = (state, error)
            self._waiting.notify()

    def tell_models(self) -> None:
        """Report soon what is in memory, if that is news."""
        if self._runner_models.unsaid() is not None:
            self.ring()

    def ring(self) -> None:
        """Send a report even if there is nothing to say: its answer may say drop."""
        with self._waiting:
            self._is_rung = True
            self._waiting.notify()

    def stop(self) -> None:
        """Give up on what is not answered yet."""
        self._stopped.set()
        with self._waiting:
            self._waiting.notify_all()
            self._mailed.notify_all()

    def join(self) -> None:
        """After `stop`: block until the last report under way is through."""
        self._thread.join()

    def _mail(self) -> None:
        while True:
            with self._waiting:
                while not (self._notes or self._state or self._is_rung):
                    if self._stopped.is_set():
                        return
                    self._waiting.wait()
                notes, self._notes = self._notes, Notes()
                state, self._state = self._state, None
                self._is_rung = False
                self._mailing = {piece.key for piece in notes.logs}
                self._mailing |= {piece.key for piece, _ in notes.output}
            try:
                while (part := notes.split()) is not None:
                    self._deliver(part, wants_order=False)
                self._deliver(notes, wants_order=False, state=state)
            except WorkerError:
                return
            finally:
                with self._mailed:
                    self._mailing = set()
                    self._mailed.notify_all()

    def _deliver(
        self,
        notes: Notes,
        *,
        wants_order: bool,
        state: tuple[WorkerState, str | None] | None = None,
    ) -> ReportAnswer:
        models, told = self._runner_models.unsaid(), state or (UNSET, UNSET)
        report = WorkerReport(
            self._incarnation,
            str(next(self._numbers)),
            notes.outcomes,
            notes.started,
            [(*key, *said) for key, said in notes.progress.items()],
            notes.logs,
            wants_order,
            told[0],
            told[1],
            models or UNSET,
            [piece for piece, _ in notes.output] or UNSET,
        )
        try:
            answer = _decode_answer(self._send("/reports", _encode(report)))
        except ReportRefused as error:
            return self._halve(notes, error, wants_order=wants_order)
        except Fenced as error:
            self.stop()
            self._on_fenced(error.message)
            raise WorkerError(error.message) from error
        if models is not None:
            self._runner_models.said(models.number)
        notes.deliver()
        self._on_answer(notes.outcomes, answer.drop)
        for asked in answer.execs or ():
            frame = ExecFrame(asked.id, *asked.key, asked.command)
            self._on_exec(frame)
        return answer

    def _halve(
        self, notes: Notes, error: ReportRefused, *, wants_order: bool
    ) -> ReportAnswer:
        """The manager cannot take this report: find the part that is to blame."""
        log.error("the manager refuses a report: %s", error.message)
        outcomes = notes.outcomes
        if outcomes and (notes.logs or notes.output):
            lines = Notes(logs=notes.logs, gates=notes.gates, output=notes.output)
            self._deliver(lines, wants_order=False)
        else:
            notes.deliver()
        if len(outcomes) <= 1:
            if not outcomes or outcomes[0].kind == "failed":
                self._on_answer(outcomes, [])
                return ReportAnswer()
            blamed = [_refused(outcomes[0], error.message)]
            return self._deliver(Notes(outcomes=blamed), wants_order=wants_order)
        middle = len(outcomes) // 2
        self._deliver(Notes(outcomes=outcomes[:middle]), wants_order=False)
        rest = Notes(outcomes=outcomes[middle:])
        return self._deliver(rest, wants_order=wants_order)

    def _send(self, path: str, body: bytes) -> bytes:
        tries = Tries(_PAUSES)
        while not self._stopped.is_set():
            try:
                return self._link.post(self._base + path, body)
            except Away as error:
                wait_s = tries.next_s()
                log.warning("%s; again in %.1f s", error.message, wait_s)
            self._stopped.wait(wait_s)
        raise WorkerError("reporting has stopped")


def _refused(outcome: AttemptOutcome, message: str) -> AttemptOutcome:
    return AttemptOutcome(
        outcome.task_id,
        outcome.attempt,
        "failed",
        error=AttemptError("bad_result", f"the manager refused the result: {message}"),
        started_at=outcome.started_at,
        duration_s=outcome.duration_s,
        load_s=outcome.load_s,
    )

"""Brings reports to the manager, for as long as it takes, and never twice.

A report keeps its number however often it is sent, so the manager can tell a
repetition. Results are kept in memory until they are answered.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from corral.errors import WorkerError
from corral.worker.manager_link import Away, Fenced, ManagerLink, ReportRefused
from corral.worker.protocol import AttemptError, AttemptOutcome, ExecFrame
from corral.worker.supervisor.held_models import ModelsReport, RunnerModels
from corral.worker.supervisor.notes import EmittedOutput, Key, LogLines, Notes

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0

Drops = list[tuple[str, int]]


class Registration(msgspec.Struct):
    """The manager's answer to a registration."""

    incarnation: str
    secret: str
    queue: str
    concurrency: int = 1
    job_types: list[str] = msgspec.field(default_factory=list)
    token: str = ""


class ReportAnswer(msgspec.Struct):
    """The manager's answer to a report; `order` is signed and not yet checked.

    `execs` may come more than once: their ids tell which are known.
    """

    order: dict[str, Any] | None = None
    drop: Drops = msgspec.field(default_factory=list)
    execs: list[ExecFrame] = msgspec.field(default_factory=list)


class WorkerReport(msgspec.Struct):
    incarnation: str
    report_id: str
    outcomes: list[AttemptOutcome] = msgspec.field(default_factory=list)
    started: list[tuple[str, int, float]] = msgspec.field(default_factory=list)
    progress: list[tuple[str, int, float, str]] = msgspec.field(default_factory=list)
    logs: list[LogLines] = msgspec.field(default_factory=list)
    wants_order: bool = False
    state: str | UnsetType = UNSET
    error: str | UnsetType | None = UNSET
    models: ModelsReport | UnsetType = UNSET
    output: list[EmittedOutput] | UnsetType = UNSET


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
        self._state: tuple[str, str | None] | None = None
        self._is_rung = False
        self._thread = threading.Thread(target=self._mail, name="reporter", daemon=True)

    def register(self, pid: int, epoch: int) -> Registration:
        """Ask for an incarnation; waits for the manager while it is away.

        Raises:
            Fenced, ReportRefused: the manager does not want this worker.
        """
        body = _encode({"pid": pid, "epoch": epoch})
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
        state = ("error", error) if error is not None else None
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

    def tell_state(self, state: str, error: str | None) -> None:
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
        state: tuple[str, str | None] | None = None,
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
        for command in answer.execs:
            self._on_exec(command)
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
        wait_s = FIRST_WAIT_S
        while not self._stopped.is_set():
            try:
                return self._link.post(self._base + path, body)
            except Away as error:
                log.warning("%s; again in %.1f s", error.message, wait_s)
            self._stopped.wait(wait_s * random.uniform(0.8, 1.2))
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)
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

"""The line before a model that several threads bring their calls to.

One thread computes, whoever brings the calls: with several, the libraries would take
handles, workspaces and threads of their own for each.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.worker.base import Failure
from corral.worker.inference import batching
from corral.worker.inference.batching import BatchLimits, ModelSpeed
from corral.worker.inference.call import Loaded, ModelCall
from corral.worker.inference.load.batch_memory import BatchMemory

LIBRARY_ERRORS = (
    RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
    AssertionError, MemoryError, OSError,
)  # fmt: skip
"""What a model's library raises on what it cannot do."""

Answer = dict[str, Any] | Exception
"""An exception is why there is none."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What batches of one model must keep to, and who looks after memory."""

    limits: BatchLimits
    pace: ModelSpeed
    trim: Callable[[], None]
    gauge: BatchMemory


@dataclass(slots=True, eq=False)
class QueuedCall:
    """A call in the line. One that is alone shares with nobody: something broke."""

    call: ModelCall
    answer: Answer | None = None
    is_alone: bool = False

    @property
    def is_done(self) -> bool:
        return self.answer is not None

    def give_up(self) -> None:
        """Whoever brought it is gone."""


class CallQueue:
    """Answers calls of any kind of model: what waits together goes together.

    `submit` has something called by the thread that computes.
    """

    def __init__(
        self,
        model: Loaded,
        rules: BatchRules,
        submit: Callable[[Callable[[], None]], None],
    ) -> None:
        self._model = model
        self._rules = rules
        self._submit = submit
        # A tokenizer is used by one thread at a time.
        self._reading = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: list[QueuedCall] = []
        self._is_driven = False

    @property
    def is_busy(self) -> bool:
        return self._is_driven

    def answers(self, calls: Sequence[ModelCall]) -> Iterator[tuple[int, Answer]]:
        """Every call's place and answer, or why it has none, as they come."""
        with self._reading:
            own = dict(enumerate(map(self._ticket, calls)))
        with self._changed:
            self._waiting += [t for t in own.values() if not t.is_done]
            self._go_on()
        try:
            while own:
                for place in self._await_done(own):
                    yield place, _answer_of(own.pop(place))
        finally:
            if own:
                self._abandon(own.values())

    def _await_done(self, own: Mapping[int, QueuedCall]) -> list[int]:
        with self._changed:
            while True:
                if done := [place for place, t in own.items() if t.is_done]:
                    return done
                self._changed.wait()

    def _abandon(self, own: Collection[QueuedCall]) -> None:
        """Nobody waits for these any more."""
        with self._changed:
            self._waiting = [t for t in self._waiting if t not in own]
            for ticket in own:
                ticket.give_up()

    def _go_on(self) -> None:
        """Have another turn, if there is something to do. The lock is held."""
        if not self._is_driven and self._has_work():
            self._is_driven = True
            self._submit(self._turn)

    def _turn(self) -> None:
        error: BaseException | None = RuntimeError("the model could not go on")
        try:
            self._step()
            error = None
        finally:
            with self._changed:
                if error is not None:
                    self._fail_all(sys.exception() or error)
                self._is_driven = False
                self._go_on()

    def _has_work(self) -> bool:
        return bool(self._waiting)

    def _fail_all(self, error: BaseException) -> None:
        """Something broke that nobody foresaw."""
        cause = error if isinstance(error, Exception) else RuntimeError(str(error))
        for ticket in self._waiting:
            ticket.answer = cause
        self._waiting = []
        self._changed.notify_all()

    def _ticket(self, call: ModelCall) -> QueuedCall:
        ticket = QueuedCall(call)
        try:
            self._model.measure(call)
        except Failure as error:
            ticket.answer = error
        return ticket

    def _step(self) -> None:
        """Do some of what waits."""
        rules, group = self._rules, self._take_group()
        calls = [ticket.call for ticket in group]
        try:
            done = batching.run_all(
                self._model, calls, rules.limits, rules.pace, rules.trim, rules.gauge
            )
        except LIBRARY_ERRORS as error:
            self._blame(group, error)
            return
        with self._changed:
            for ticket, answer in zip(group, done, strict=True):
                ticket.answer = answer
            self._changed.notify_all()

    def _take_group(self) -> list[QueuedCall]:
        with self._changed:
            first = self._waiting[0]
            group = [t for t in self._waiting if t.is_alone == first.is_alone]
            group = [first] if first.is_alone else group
            self._waiting = [t for t in self._waiting if t not in group]
        return group

    def _blame(self, group: Sequence[QueuedCall], error: Exception) -> None:
        """One by one the culprit shows itself; alone it is to blame."""
        with self._changed:
            if len(group) == 1:
                group[0].answer = error
                self._changed.notify_all()
                return
            for ticket in group:
                ticket.is_alone = True
            self._waiting[:0] = group


def _answer_of(ticket: QueuedCall) -> Answer:
    assert ticket.answer is not None
    return ticket.answer

"""What a worker has to tell its manager: gathered, merged, then sent as one report."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from corral.worker.backpressure import Backpressure
from corral.worker.protocol import AttemptOutcome, ProgressFrame

Key = tuple[str, int]

REPORT_BYTES = 8 << 20
# Less than of results: a manager may get as much from every worker at once.
LOG_BYTES = 256 << 10


class LogLines(msgspec.Struct):
    """A piece of one attempt's log; `seq` is the number of its last line."""

    task_id: str
    attempt: int
    seq: int
    lines: Raw

    @property
    def key(self) -> Key:
        return (self.task_id, self.attempt)

    @property
    def size(self) -> int:
        return len(memoryview(self.lines))


class EmittedOutput(msgspec.Struct):
    """Pieces of one attempt's output; `first` is the number of the first of them."""

    task_id: str
    attempt: int
    first: int
    values: list[Raw]

    @property
    def key(self) -> Key:
        return (self.task_id, self.attempt)

    @property
    def size(self) -> int:
        return sum(len(memoryview(value)) for value in self.values)

    def takes(self, later: EmittedOutput) -> bool:
        """Take in what follows directly; false when something else does."""
        is_next = later.first == self.first + len(self.values)
        if is_next and later.key == self.key:
            self.values += later.values
            return True
        return False


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

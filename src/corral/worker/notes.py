"""What a worker has to tell its manager: gathered, merged, then sent as one report."""

from __future__ import annotations

from dataclasses import dataclass, field

from corral.worker.capture import Line
from corral.worker.frame import Outcome, Progress

Key = tuple[str, int]


@dataclass(slots=True)
class LogLines:
    """A numbered piece of one attempt's log."""

    task_id: str
    attempt: int
    seq: int
    lines: list[Line]


@dataclass(slots=True)
class Notes:
    """Fields as in the report on the wire."""

    outcomes: list[Outcome] = field(default_factory=list)
    started: list[tuple[str, int, float]] = field(default_factory=list)
    progress: dict[Key, tuple[float, str]] = field(default_factory=dict)
    logs: list[LogLines] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.outcomes or self.started or self.progress or self.logs)

    def merge(self, later: Notes) -> None:
        self.outcomes += later.outcomes
        self.started += later.started
        self.progress.update(later.progress)
        self.logs += later.logs

    def note_progress(self, frame: Progress) -> None:
        key = (frame.task_id, frame.attempt)
        self.progress[key] = (frame.fraction, frame.message)

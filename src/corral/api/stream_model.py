"""Shapes of the output that tasks emit while they run."""

from __future__ import annotations

from msgspec import Raw, Struct

from corral.api.model import TaskBrief


class PieceOut(Struct):
    """One piece; `value` is any JSON value."""

    attempt: int
    number: int
    value: Raw


class RestartedOut(Struct):
    """Pieces of another attempt follow; what came after number `after` is void."""

    attempt: int
    after: int


class SkippedOut(Struct):
    """So many pieces are no longer there."""

    count: int


class OutputOut(Struct):
    """`task` comes with the end, once everything before it has been told."""

    pieces: list[PieceOut]
    cursor: str
    done: bool
    restarted: RestartedOut | None = None
    skipped: int = 0
    task: TaskBrief | None = None

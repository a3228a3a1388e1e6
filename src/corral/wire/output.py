"""What tasks say and leave, as answers show it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from corral.wire.tasks import Progress
from corral.wire.value import Known, Value


class LogLine(Value, frozen=True, kw_only=True):
    """A line a task printed."""

    text: str
    attempt: int = 1
    at: datetime | None = None
    stream: str = "stdout"


class LogOutput(Value, frozen=True, kw_only=True):
    """Lines after a cursor; done when the task has ended and all was told."""

    lines: list[LogLine]
    cursor: Known[str] = None
    done: bool = False
    status: str = ""
    progress: Progress | None = None


class Piece(Value, frozen=True, kw_only=True):
    """A piece of output, any JSON value.

    Pieces are counted from 1 on. When an attempt that begins again follows another,
    its first piece has a number that was there before: what came from there on is void.
    """

    attempt: int
    number: int
    value: Any


class StreamPage(Value, frozen=True, kw_only=True):
    """Pieces after a cursor; done when the task has ended and all was told."""

    pieces: list[Piece]
    cursor: str
    done: bool


class ExecInfo(Value, frozen=True, kw_only=True):
    """A command that runs beside one attempt of a task."""

    exec_id: str
    task_id: str
    attempt: int


class ExecOutput(Value, frozen=True, kw_only=True):
    """Something it printed, in base64; `stream` is stdout or stderr."""

    stream: str
    data: bytes


class ExecEnd(Value, frozen=True, kw_only=True):
    """How it ended; without an exit code `error` says why there is none."""

    exit_code: int | None = None
    error: str | None = None


class ExecPage(Value, frozen=True, kw_only=True):
    """`next` is the `after` of the page that follows. Done: nothing comes any more.

    Without an exit code `error` says why there is none.
    """

    chunks: list[ExecOutput]
    next: int
    done: bool
    exit_code: int | None = None
    error: str | None = None


class ArtifactInfo(Value, frozen=True, kw_only=True):
    """`digest` is the SHA-256 of the file."""

    name: str
    size: int
    digest: str


class ArtifactList(Value, frozen=True, kw_only=True):
    """What one attempt left; `left_out` says in one line what could not be kept.

    `attempt` is None, and the list empty, when nothing was left.
    """

    task_id: str
    attempt: int | None = None
    artifacts: list[ArtifactInfo] = []
    size: int = 0
    left_out: str = ""
    created_at: datetime | None = None


class KeepRequest(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker asks to have kept of an attempt it holds: artifacts, checkpoint."""

    task_id: str
    attempt: int
    kind: str
    digest: str
    left_out: str = ""

"""Frames between supervisor and runner: a 4-byte length, then JSON.

Payloads and results stay raw bytes here: the supervisor never decodes them.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from corral.wire.orders import AttemptOutcome, Item, ModelInMemory

HEADER = 4


class Frame(Struct, tag_field="op", omit_defaults=True, kw_only=True):
    """Base of all frames; `op` tells them apart.

    `lane` is which of the orders that one runner has at a time it is about.
    """

    lane: int = 0


class InitFrame(Frame, tag="init"):
    """`log_limit` is how many bytes of a task's output are kept, beside the last.

    `model_room` is how many models are held at most. `lanes` is how many orders it gets
    at a time, if its class can do that.
    """

    worker_class: str
    params: dict[str, Any]
    log_limit: int | None = None
    model_room: int | None = None
    lanes: int = 1


class RunFrame(Frame, tag="run"):
    """`solo` keeps a class with run_batch from taking the items all at once.

    The models of `unload` are dropped first.
    """

    items: list[Item]
    solo: bool = False
    unload: list[str] = []


class UnloadFrame(Frame, tag="unload"):
    """Drop these models, once what runs now is through."""

    models: list[str]


class CancelFrame(Frame, tag="cancel"):
    """Asks a task to stop; `reason` is cancelled or timeout."""

    task_id: str
    reason: str = "cancelled"


class ExecFrame(Frame, tag="exec"):
    """Asks for a command to be run beside an attempt, in its environment."""

    id: str
    task_id: str
    attempt: int
    command: list[str]


class ShapeFrame(Frame, tag="shape"):
    """How many orders this runner takes at a time; told before its class is started."""

    lanes: int


class ReadyFrame(Frame, tag="ready"):
    """`sizes` are MB of models, as far as the class knows them before any load."""

    sizes: dict[str, float] = {}


class BrokenFrame(Frame, tag="error"):
    """The worker class cannot be imported or started."""

    message: str
    traceback: str | None = None


class DoneFrame(Frame, tag="done"):
    """Outcomes; early ones are of a batch that goes on for others."""

    outcomes: list[AttemptOutcome]
    is_early: bool = False


class EndFrame(Frame, tag="end"):
    pass


class ProgressFrame(Frame, tag="progress"):
    task_id: str
    attempt: int
    fraction: float
    message: str


class LogFrame(Frame, tag="log"):
    """`lines` are (epoch seconds, stream, text); `count` is how many those texts have.

    A text may hold several lines, with line ends between them.
    """

    task_id: str
    attempt: int
    count: int
    lines: Raw


class ChunksFrame(Frame, tag="chunks"):
    """Pieces of a task's output; `first` is the number of the first of them.

    They are counted from 1 on; an attempt that goes on from the one before counts on.
    """

    task_id: str
    attempt: int
    first: int
    values: list[Raw]

    @property
    def key(self) -> tuple[str, int]:
        return (self.task_id, self.attempt)

    @property
    def size(self) -> int:
        return sum(len(memoryview(value)) for value in self.values)


class LeftFilesFrame(Frame, tag="left"):
    """Files an attempt leaves beside its result, by name; told before its outcome."""

    task_id: str
    attempt: int
    files: dict[str, bytes]

    @property
    def key(self) -> tuple[str, int]:
        return (self.task_id, self.attempt)


class StopGraceFrame(Frame, tag="patience"):
    """How long this task may take to stop by itself once it is asked to."""

    task_id: str
    attempt: int
    seconds: float


class ModelLoadFrame(Frame, tag="loading"):
    """A model is being loaded, until `ModelsFrame` tells of it or its task ends."""

    model: str


class ModelsFrame(Frame, tag="models"):
    """All models in this runner's memory."""

    held: list[ModelInMemory]


class MemoryLeakFrame(Frame, tag="worn"):
    """Memory of a model that went did not come back: start this runner anew.

    Of `size_mb` of it `left_mb` are left, with what others before it left.
    """

    model: str
    left_mb: float
    size_mb: float


ToRunner = InitFrame | RunFrame | CancelFrame | ExecFrame | UnloadFrame
NO_LANE = -1
"""`lane` of a frame that is about no order."""

FromRunner = (
    ShapeFrame
    | ReadyFrame
    | BrokenFrame
    | DoneFrame
    | EndFrame
    | ProgressFrame
    | LogFrame
    | ChunksFrame
    | LeftFilesFrame
    | StopGraceFrame
    | ModelLoadFrame
    | ModelsFrame
    | MemoryLeakFrame
)

_encoder = msgspec.json.Encoder()
decode_to_runner = msgspec.json.Decoder(ToRunner).decode
decode_from_runner = msgspec.json.Decoder(FromRunner).decode


class Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


def pack(frame: Frame) -> bytes:
    """The bytes of one frame, length first."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(HEADER, "big") + body


def read_frame(stream: Readable) -> bytes | None:
    """The body of the next frame; None when the other side is gone."""
    header = stream.read(HEADER)
    if header is None or len(header) < HEADER:
        return None
    size = int.from_bytes(header, "big")
    body = stream.read(size)
    return body if body is not None and len(body) == size else None

"""Orders and reports: what the manager and its workers tell each other.

Payloads, results and what tasks print stay raw JSON here: only who uses them decodes
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from corral.core.models.model import MemoryLeak, ModelLoad
from corral.core.nodes.worker import WorkerState

Key = tuple[str, int]
"""An attempt: the id of its task, and its number."""


class OfAttempt(Struct):
    """Something that is about one attempt."""

    task_id: str
    attempt: int

    @property
    def key(self) -> Key:
        return (self.task_id, self.attempt)


class Item(OfAttempt, omit_defaults=True):
    """One attempt of an order, as it travels from the manager to the runner.

    `inputs` are results by task; `variables` show it the GPUs it was given, and the
    others of its gang; `emitted` are the pieces of output that attempts before this
    one have sent; `profile` is the kind of profiler it runs under, if any; `edition`
    what of its model the catalogue has now, empty where it does not say; `owner` whose
    it is.
    """

    payload: Raw
    job_type: str = ""
    timeout_s: float | None = None
    inputs: Raw | UnsetType = UNSET
    labels: dict[str, str] | None = None
    overlap: str = "allowed"
    model: str | None = None
    variables: dict[str, str] | None = None
    emitted: Raw | UnsetType = UNSET
    request_id: str = ""
    traceparent: str = ""
    profile: str = ""
    edition: str = ""
    owner: str = ""


class Order(Struct, omit_defaults=True):
    """The batch of attempts that one message carries to one worker.

    `unload` names the models that the worker drops before it begins.
    """

    id: str
    worker_id: str
    incarnation: str
    items: list[Item]
    unload: list[str] = []


class AttemptError(Struct, omit_defaults=True):
    """Why an attempt did not complete; `kind` is a stable word.

    After a final one the task is not tried again.
    """

    kind: str
    message: str
    traceback: str | None = None
    is_final: bool = False


class AttemptOutcome(OfAttempt, omit_defaults=True):
    """How an attempt ended, as it travels from the runner to the manager.

    `load_s` is what its model took to load; it is no part of `duration_s`.
    `memory_mb` is the most GPU memory it took beside its model, where known.
    """

    kind: str
    result: Raw | UnsetType = UNSET
    error: AttemptError | None = None
    started_at: float | None = None
    duration_s: float = 0.0
    load_s: float = 0.0
    memory_mb: float | None = None


class LogLines(OfAttempt):
    """A piece of an attempt's log; `seq` is the number of its last line.

    `lines` are [epoch seconds, stream, text]...; a text may have several lines.
    """

    seq: int
    lines: Raw

    @property
    def size(self) -> int:
        return len(memoryview(self.lines))


class EmittedOutput(OfAttempt):
    """Pieces of an attempt's output; `first` is the number of the first of them."""

    first: int
    values: list[Raw]

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


@dataclass(frozen=True, slots=True)
class ModelInMemory(ModelLoad):
    """A model in a runner's memory; `loaded_at` is epoch seconds of its machine."""

    loaded_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelInRunners(ModelInMemory):
    """A model, and how many runners have it."""

    copies: int = 1


class ModelsReport(Struct, omit_defaults=True):
    """Every model in a worker's memory; a higher `number` is said later.

    `sizes` are MB of models that its class can name before it has loaded them.
    `restarts` counts runners that were started anew for memory that did not come
    back; `worn` is what the last of them had lost.
    """

    number: int
    held: list[ModelInRunners] = []
    sizes: dict[str, float] = {}
    restarts: int = 0
    worn: MemoryLeak | None = None


class WorkerReport(Struct):
    """One numbered word of a worker incarnation. `error` belongs to `state`."""

    incarnation: str
    report_id: str
    outcomes: list[AttemptOutcome] = []
    started: list[tuple[str, int, float]] = []
    progress: list[tuple[str, int, float, str]] = []
    logs: list[LogLines] = []
    wants_order: bool = False
    state: WorkerState | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET
    models: ModelsReport | UnsetType | None = UNSET
    output: list[EmittedOutput] | UnsetType = UNSET


class ExecRequest(OfAttempt):
    """Asks for a command to be run beside an attempt, in its environment."""

    id: str
    command: list[str]


class ReportAnswer(Struct):
    """What a report is answered; `order` is signed and not yet checked.

    `execs` may come more than once: their ids tell which are known.
    """

    order: dict[str, Any] | None = None
    drop: list[Key] = []
    execs: list[ExecRequest] | UnsetType = UNSET


class SupervisorStart(Struct):
    """What a supervisor says of itself when it asks for an incarnation."""

    pid: int
    epoch: int

"""The class users write: `Worker`, and the `Context` it talks to its task through.

Nothing here knows of processes, frames or the network; `launch` and `connect` load the
client for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from corral.client.job_api.worker_service import WorkerConnection


class Channel(Protocol):
    """Where a context's words go; the runner provides it."""

    def progress(self, task_id: str, attempt: int, fraction: float, text: str) -> None:
        """Pass on how far the task is."""

    def log(self, text: str) -> None:
        """Pass on a line of the running task's log."""

    def is_cancelled(self, task_id: str) -> bool:
        """Has someone asked for this task to stop?"""

    def on_stop(self, task_id: str, call: Callable[[str], None]) -> None:
        """Call it, with the reason, when this task is asked to stop."""

    def patience(self, task_id: str, attempt: int, seconds: float) -> None:
        """Say how long the task may take to stop once it is asked to."""

    def emit(self, task_id: str, attempt: int, value: Any) -> None:
        """Pass on a piece of the task's output."""

    def go_on(self, task_id: str, attempt: int, count: int) -> None:
        """What is emitted next comes after so many pieces of attempts before."""

    def decode(self, text: Any) -> Any:
        """The value of a piece of JSON that nobody has decoded yet."""


class Failure(Exception):
    """Raise it to fail a task with a kind of one's own and something to show.

    `output` is kept as the task's result, as any JSON value. A final one is not tried
    again, whatever retries are left: no attempt, here or elsewhere, could succeed.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "failed",
        output: Any = None,
        is_final: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.output = output
        self.is_final = is_final


class Lost(Failure):
    """What ran the task was taken away under it: it is tried again, as when a runner
    dies, and nobody takes it for the task's own failure.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="worker_died")


class Context:
    """The running task as its worker sees it, in `self.context`."""

    __slots__ = (
        "_channel", "_emitted", "_inputs", "attempt", "job_type", "labels", "model",
        "request_id", "task_id", "traceparent", "variables",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        task_id: str,
        attempt: int,
        job_type: str = "",
        inputs: Any = None,
        labels: Mapping[str, str] | None = None,
        model: str | None = None,
        variables: Mapping[str, str] | None = None,
        emitted: Any = None,
        request_id: str = "",
        traceparent: str = "",
    ) -> None:
        self._channel = channel
        self._inputs = inputs
        self._emitted = emitted
        self.task_id = task_id
        self.attempt = attempt
        self.job_type = job_type
        self.labels = labels or {}
        self.model = model
        self.variables = variables or {}
        self.request_id = request_id
        self.traceparent = traceparent

    @property
    def gpus(self) -> tuple[str, ...]:
        """Ids of the GPUs this task was given, where it asked for some."""
        ids = self.variables.get("CORRAL_GPUS", "")
        return tuple(ids.split(",")) if ids else ()

    @property
    def inputs(self) -> dict[str, Any]:
        """Outputs of the tasks this one depends on, by task id."""
        if not self._inputs:
            return {}
        if not isinstance(self._inputs, dict):
            self._inputs = self._channel.decode(self._inputs) or {}
        return dict(self._inputs)

    @property
    def cancelled(self) -> bool:
        """Should the task stop? Long loops should look, and return early.

        It has been cancelled, or its time is up and its worker has `stop_grace_s`.
        A task that goes on regardless is killed, with its runner, shortly after.
        """
        return self._channel.is_cancelled(self.task_id)

    def on_stop(self, call: Callable[[str], None]) -> None:
        """Have `call` called, from another thread, when the task should stop.

        It gets the reason: cancelled or timeout.
        """
        self._channel.on_stop(self.task_id, call)

    def allow_to_stop(self, seconds: float) -> None:
        """From now on the task may take so long to stop once it is asked to."""
        self._channel.patience(self.task_id, self.attempt, seconds)

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the task is: 0.0 at its start, 1.0 when done."""
        self._channel.progress(self.task_id, self.attempt, float(fraction), message)

    def log(self, text: str) -> None:
        """Add a line to the task's log, beside what it prints."""
        self._channel.log(str(text))

    def emit(self, value: Any) -> None:
        """Send a piece of output, any JSON value, to those who follow the task.

        Pieces reach them at once and in order. They are not kept for long, so the
        result must have everything once more.
        """
        self._channel.emit(self.task_id, self.attempt, value)

    @property
    def emitted(self) -> list[Any]:
        """What an attempt before this one, which was lost, has emitted already.

        Who reads it says that this attempt goes on from there, and emits only what
        follows. An attempt that never looks begins from the start.
        """
        if not self._emitted:
            return []
        if not isinstance(self._emitted, list):
            self._emitted = list(self._channel.decode(self._emitted))
        self._channel.go_on(self.task_id, self.attempt, len(self._emitted))
        return list(self._emitted)


at_hand: ContextVar[Sequence[Context]] = ContextVar("at_hand")
"""The tasks that this thread is at, where several threads of a process run tasks."""


class Worker:
    """Base class of everything that runs tasks.

    A subclass defines `run(payload)`, which returns the task's output as any JSON
    value, or `_run(payload)`, which returns `{"status": ..., "output": ...}`. What
    either raises fails the task. One instance serves one runner process; tasks run
    one at a time in it, unless the class has `shares_runner`.

    A subclass may also define `run_batch(payloads) -> list`: it then gets several
    payloads at once whenever several wait, and returns one output for each, in
    order (an exception object in the list fails that one task). As an iterator of
    `(place, output)` it has each task reported as soon as that comes.
    """

    context: Context
    contexts: Sequence[Context]
    """One for each payload of a batch, while `run_batch` has it."""
    stop_grace_s: float = 0.0
    """How long a task that is cancelled, or out of time, may take to clean up: it
    sees `self.context.cancelled`. Without it a task out of time is killed at once."""
    shares_runner: bool = False
    """May one process run several tasks of this class at a time?

    Then a worker with a concurrency of N has one runner instead of N, and `run` (or
    `run_batch`) of the one instance is called from up to N threads at once, its
    `lanes`; `start`, `load_model` and `unload_model` never are, nor is a model
    unloaded that a task is using. `self.context` and `self.contexts` are those of the
    task that the calling thread is at. A thread that the class starts by itself sees
    none: hand it the context. What a lane prints is its own task's log.

    A task that has to be killed takes the process along, and the tasks of all lanes
    with it, which are then tried again as after any death. So such a class should
    have `stop_grace_s`, and end its tasks when they are cancelled."""
    lanes: int = 1
    """How many tasks may run at a time in this process; known before `start`."""

    def __init__(self, **params: Any) -> None:
        self.params = params

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # With lanes no task is the instance's own: each thread has its tasks.
            if name in ("context", "contexts") and (tasks := at_hand.get(())):
                return tasks if name == "contexts" else tasks[0]
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    @classmethod
    def launch(
        cls,
        *,
        url: str | None = None,
        host: str = "localhost",
        port: int | None = None,
        cluster_url: str | None = None,
        num_workers: int = 1,
        wait_for_launch: bool = True,
        timeout: float = 60.0,
        progress_bar: bool = True,
        block: bool = False,
        api_key: str | None = None,
        **params: Any,
    ) -> WorkerConnection:
        """Start one worker of this class by itself; it ends with this process.

        It serves no job type until it is connected to one by its URL.

        Args:
            url: Where it answers; else `host` and `port`, or any free port.
            host: The host of its URL; localhost opens the port on loopback alone.
            port: The port of its URL.
            cluster_url: Its manager; else the one launched last by this process, or
                the one the settings name. It is waited for when it is not there yet.
            num_workers: How many tasks it runs at a time.
            wait_for_launch: Return when it is ready.
            timeout: How long that may take, in seconds.
            progress_bar: Show a spinner meanwhile, in a terminal.
            block: Return only when it has ended.
            api_key: The key to show the manager.
            **params: What the class is made with.

        Raises:
            AlreadyRunning: something answers at that address already.
            Unreachable, WorkerError: it did not come up.
        """
        from corral.client.job_api.worker_service import launch_worker

        return launch_worker(
            cls,
            params,
            url=url,
            host=host,
            port=port,
            cluster_url=cluster_url,
            num_workers=num_workers,
            wait_for_launch=wait_for_launch,
            timeout=timeout,
            progress_bar=progress_bar,
            block=block,
            api_key=api_key,
        )

    @classmethod
    def connect(
        cls, url: str, timeout: float = 60.0, api_key: str | None = None
    ) -> WorkerConnection:
        """A connection to a worker that runs; Unreachable when none answers there."""
        from corral.client.job_api.worker_service import connect_worker

        return connect_worker(url, timeout, api_key)

    def in_main(self, call: Callable[[], None]) -> None:
        """Have `call` called by the runner's main thread, soon; returns at once.

        With lanes that thread does nothing else, one call after the other: for
        libraries that are bound to a thread, or take more with each that uses them.
        """
        call()

    def start(self) -> None:
        """Called once in the runner before the first task: load what is slow."""

    def run(self, payload: Any) -> Any:
        """Do one task and return its bare output."""
        raise NotImplementedError(f"{type(self).__name__} has no run(payload)")

    def canary(self) -> Any:
        """Try whether this worker could do its work: `corral validate` calls it.

        What it returns (any JSON value) is shown; what it raises says that the worker
        is broken. Called between tasks, so it should be quick.
        """
        return None

    def load_model(self, name: str) -> None:
        """Bring a model into memory; called before tasks that need it."""

    def unload_model(self, name: str) -> None:
        """Free what `load_model` took."""

    def model_memory_mb(self, name: str) -> float | None:
        """The GPU memory a model takes, where that is known; asked once it is there."""
        return None

    def model_sizes(self) -> Mapping[str, float]:
        """MB of GPU memory by model, for those known before they are loaded.

        A model whose size nobody knows gets a card to itself the first time.
        """
        return {}

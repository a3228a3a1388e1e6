"""The class users write: `Worker`, and the `Context` it talks to its task through.

Nothing here knows of processes, frames or the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Channel(Protocol):
    """Where a context's words go; the runner provides it."""

    def progress(self, task_id: str, attempt: int, fraction: float, text: str) -> None:
        """Pass on how far the task is."""

    def log(self, text: str) -> None:
        """Pass on a line of the running task's log."""

    def is_cancelled(self, task_id: str) -> bool:
        """Has someone asked for this task to stop?"""

    def decode(self, text: Any) -> Any:
        """The value of a piece of JSON that nobody has decoded yet."""


class Context:
    """The running task as its worker sees it, in `self.context`."""

    __slots__ = (
        "_channel", "_inputs", "attempt", "job_type", "labels", "model", "task_id",
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
    ) -> None:
        self._channel = channel
        self._inputs = inputs
        self.task_id = task_id
        self.attempt = attempt
        self.job_type = job_type
        self.labels = labels or {}
        self.model = model

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
        """Has the task been cancelled? Long loops should look, and return early.

        A task that goes on regardless is killed, with its runner, shortly after.
        """
        return self._channel.is_cancelled(self.task_id)

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the task is: 0.0 at its start, 1.0 when done."""
        self._channel.progress(self.task_id, self.attempt, float(fraction), message)

    def log(self, text: str) -> None:
        """Add a line to the task's log, beside what it prints."""
        self._channel.log(str(text))


class Worker:
    """Base class of everything that runs tasks.

    A subclass defines `run(payload)`, which returns the task's output as any JSON
    value, or `_run(payload)`, which returns `{"status": ..., "output": ...}`. What
    either raises fails the task. One instance serves one runner process; tasks run
    one at a time in it.

    A subclass may also define `run_batch(payloads) -> list`: it then gets several
    payloads at once whenever several wait, and returns one output for each, in
    order (an exception object in the list fails that one task).
    """

    context: Context

    def __init__(self, **params: Any) -> None:
        self.params = params

    def start(self) -> None:
        """Called once in the runner before the first task: load what is slow."""

    def run(self, payload: Any) -> Any:
        """Do one task and return its bare output."""
        raise NotImplementedError(f"{type(self).__name__} has no run(payload)")

    def load_model(self, name: str) -> None:
        """Bring a model into memory; called before tasks that need it."""

    def unload_model(self, name: str) -> None:
        """Free what `load_model` took."""

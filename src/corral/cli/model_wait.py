"""What a person sees until a model's first word: why it waits, or that it loads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from corral.cli import progress
from corral.errors import CorralError

if TYPE_CHECKING:
    from corral.client import Client, TaskDetail

_FIRST_S = 0.3
_LOOK_S = 1.0


@contextmanager
def waiting(client: Client, task_id: str, model: str) -> Iterator[Callable[[], None]]:
    """A spinner, on a terminal, until what this gives is called."""
    if not progress.is_live():
        yield lambda: None
        return
    with ExitStack() as spinner:
        say = spinner.enter_context(progress.spinner(f"asking {model}"))
        watch = _Watch(client, task_id, model, say)
        # A thread: the caller waits for the first word, which may come any moment.
        threading.Thread(target=watch.run, daemon=True).start()

        def is_here() -> None:
            watch.end()
            spinner.close()

        try:
            yield is_here
        finally:
            watch.end()


class _Watch:
    def __init__(
        self, client: Client, task_id: str, model: str, say: progress.Say
    ) -> None:
        self._client = client
        self._task_id = task_id
        self._model = model
        self._say = say
        self._over = threading.Event()
        # Nothing is said once the first word may be on the screen.
        self._speaking = threading.Lock()

    def end(self) -> None:
        with self._speaking:
            self._over.set()

    def run(self) -> None:
        pause_s = _FIRST_S
        # Whatever goes wrong, the command itself says. A client that was closed
        # meanwhile raises RuntimeError.
        with contextlib.suppress(CorralError, RuntimeError):
            while not self._over.wait(pause_s):
                words = self._describe(self._client.get_task(self._task_id))
                with self._speaking:
                    if not self._over.is_set():
                        self._say(words)
                pause_s = _LOOK_S

    def _describe(self, task: TaskDetail) -> str:
        if task.waiting:
            return f"{self._model} waits: {task.waiting.text}"
        if task.progress and task.progress.message:
            return f"{self._model}: {task.progress.message}"
        where = task.worker_id or task.assigned_worker
        if where and not self._is_loaded(where):
            return f"{self._model} is being loaded on {where}"
        return f"{self._model} thinks"

    def _is_loaded(self, worker_id: str) -> bool:
        return any(
            held.name == self._model and held.status == "loaded"
            for worker in self._client.models()
            if worker.worker_id == worker_id
            for held in worker.models
        )

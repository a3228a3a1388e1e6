"""One answer of a model: asked for, waited for, told as it comes.

Until its first word one sees why it waits, or that the model loads. Who no longer wants
it cancels its task, so that the work stops.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from corral.cli.terminal import output, progress
from corral.cli.words import task as task_words
from corral.errors import CorralError, NotFound, SchedulingError, TaskFailed

if TYPE_CHECKING:
    from corral.client import Client, TaskDetail
    from corral.wire.output import Piece


_FIRST_S = 0.3
_LOOK_S = 1.0
GENERATE = "generate"
_CLASS = "corral.InferenceWorker"
_NAMES = 10


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model wrote; `finish_reason` is stop, length or cancelled."""

    task_id: str
    text: str
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    tokens: int = 0


class ShownText:
    """Text as it is shown: each letter once, though an attempt may begin again."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._pieces: list[str] = []
        self._at = 0
        self.text = ""

    def take(self, piece: Piece) -> None:
        if piece.number <= len(self._pieces):
            del self._pieces[piece.number - 1 :]
            self._at = sum(map(len, self._pieces))
        text = text_of(piece.value) or ""
        fresh = text[max(len(self.text) - self._at, 0) :]
        self._pieces.append(text)
        self._at += len(text)
        self._say(fresh)

    def finish(self, whole: str) -> None:
        """Show what of it has not been shown."""
        self._say(whole[len(self.text) :])

    def _say(self, text: str) -> None:
        self.text += text
        if text:
            self._write(text)


def ask(
    client: Client, model: str, payload: dict[str, Any], told: ShownText | None = None
) -> ModelAnswer:
    """Have the model answer; `told` gets the text as it is written.

    Raises:
        TaskFailed: it did not.
    """
    if told is not None:
        payload = {**payload, "stream": True}
    with wanted(client) as task_id:
        client.submit(GENERATE, payload, model_name=model, task_id=task_id)
        with waiting(client, task_id, model) as is_here:
            if told is not None:
                for piece in client.stream(task_id):
                    is_here()
                    told.take(piece)
            answer = _read(client, task_id)
        if told is not None:
            told.finish(answer.text)
    return answer


@contextmanager
def wanted(client: Client) -> Iterator[str]:
    """An id for a task that is cancelled when nobody waits for it any more."""
    # Known before it is sent: also what is on its way can be cancelled.
    task_id = str(uuid4())
    try:
        yield task_id
    except (KeyboardInterrupt, BrokenPipeError):
        with suppress(CorralError):
            client.cancel(task_id)
        raise


def _read(client: Client, task_id: str) -> ModelAnswer:
    from corral.client import result_of

    result = result_of(client.wait(task_id))
    text = text_of(result)
    if text is None:
        said = f"task {task_id}: the worker's answer has no text"
        raise TaskFailed(said, task_id=task_id, kind="bad_result")
    told = result if isinstance(result, dict) else {}
    return ModelAnswer(
        task_id,
        text,
        str(told.get("finish_reason", "stop")),
        _count(told.get("prompt_tokens")),
        _count(told.get("tokens")),
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def text_of(value: Any) -> str | None:
    """The text in a piece or an answer: itself, or what it has under `text`."""
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) else None


def write(text: str) -> None:
    """Show text at once; a terminal gets nothing that would move its cursor."""
    out = sys.stdout
    if out.isatty():
        text = "".join(c for c in text if c.isprintable() or c in "\n\t")
    encoding = out.encoding or "utf-8"
    out.write(text.encode(encoding, "replace").decode(encoding))
    out.flush()


def end_line(text: str) -> None:
    """End the line that `text` has left open."""
    if not text.endswith("\n"):
        write("\n")


def check(client: Client, model: str, job_type: str = GENERATE) -> None:
    """Say what is missing before anything waits for it.

    Raises:
        SchedulingError: no worker serves the job type.
        NotFound: nobody knows the model.
    """
    _check_workers(client, job_type)
    names = client.model_names()
    if model not in names:
        raise NotFound(f"the model {model!r} is unknown{_nearest(model, names)}")


def _check_workers(client: Client, job_type: str) -> None:
    serving = [w for w in client.workers() if job_type in w.job_types]
    broken = [w for w in serving if w.error and w.status == "error"]
    if serving and len(broken) < len(serving):
        return
    if broken:
        first = broken[0]
        raise SchedulingError(
            f"no worker serves '{job_type}': {first.worker_id} cannot start: "
            f"{first.error}"
        )
    if _comes_by_demand(client, job_type):
        return
    raise SchedulingError(
        f"no worker serves '{job_type}': start one with "
        f"'corral worker launch {_CLASS} --job-type {job_type}'"
    )


def _comes_by_demand(client: Client, job_type: str) -> bool:
    """Is it done elsewhere, or is a worker started once a task waits?"""
    if any(each.name == job_type and each.target for each in client.job_types()):
        return True
    scaling = client.scaling()
    kinds = [each for each in scaling.types if each.job_type == job_type]
    return scaling.enabled and any(each.max_workers for each in kinds)


def _nearest(model: str, names: list[str]) -> str:
    from difflib import get_close_matches

    if not names:
        return ", and there is none yet: add one with 'corral models add'"
    near = get_close_matches(model, names, 1, 0.6)
    asked = f"; did you mean {near[0]!r}?" if near else ";"
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{asked} There are: {', '.join(names[:_NAMES])}{more}"


def warn_of_length(answer: ModelAnswer) -> None:
    """A text that was cut should not pass for a whole one."""
    if answer.finish_reason == "length" and sys.stderr.isatty():
        output.hint(f"(cut after {answer.tokens} tokens: --max-tokens allows more)")


@contextmanager
def waiting(client: Client, task_id: str, model: str) -> Iterator[Callable[[], None]]:
    """A spinner, on a terminal, until what this gives is called."""
    if not progress.is_live():
        yield lambda: None
        return
    with ExitStack() as spinner:
        say = spinner.enter_context(progress.spinner(f"asking {model}"))
        watch = _WaitDisplay(client, task_id, model, say)
        # A thread: the caller waits for the first word, which may come any moment.
        threading.Thread(target=watch.run, daemon=True).start()

        def is_here() -> None:
            watch.end()
            spinner.close()

        try:
            yield is_here
        finally:
            watch.end()


class _WaitDisplay:
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
        if why := task_words.waits(task):
            return f"{self._model} waits: {why}"
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

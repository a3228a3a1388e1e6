"""RunScriptWorker: a task is a command, run in an environment of its own."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from corral.core.script import Script, read_script
from corral.errors import CorralError, InvalidField
from corral.worker.base import Failure, Worker
from corral.worker.script.access import read_access
from corral.worker.script.output import Output
from corral.worker.script.run import Place, Running, Starter

# What ending a family and reading its last words may take beyond the grace.
_MARGIN_S = 10.0


class RunScriptWorker(Worker):
    """Runs `{"command": ..., "environment": {"git" | "archive" | "docker": ...}}`.

    The result has the exit code, the end of stdout and stderr, the duration and the
    files it left; an exit code other than 0 fails the task.
    """

    def __init__(self, access: Any = None, **params: Any) -> None:
        super().__init__(**params)
        if access is None:
            raise InvalidField("scripts are run by a node's own worker only")
        self._access = read_access(access)
        self._starter = Starter(self._access)

    def start(self) -> None:
        self._starter.cache.sweep()

    def run(self, payload: Any) -> dict[str, Any]:
        try:
            script = read_script(payload)
            with self._place() as place:
                return self._run_in(script, place)
        except CorralError as error:
            output = getattr(error, "output", None)
            shown = {"output": output} if output else None
            raise Failure(error.message, kind=error.code, output=shown) from error

    @contextmanager
    def _place(self) -> Iterator[Place]:
        task = self.context
        with self._starter.cache.scratch() as scratch:
            artifacts, checkpoint = scratch / "artifacts", scratch / "checkpoint"
            for folder in (artifacts, checkpoint):
                folder.mkdir()
            yield Place(
                scratch / "own",
                artifacts,
                checkpoint,
                f"{self._access.worker_id}.{task.task_id}.{task.attempt}",
                {
                    "CORRAL_TASK_ID": task.task_id,
                    "CORRAL_ATTEMPT": str(task.attempt),
                    "CORRAL_ARTIFACTS": str(artifacts),
                    "CORRAL_CHECKPOINT": str(checkpoint),
                    "PYTHONUNBUFFERED": "1",
                },
            )

    def _run_in(self, script: Script, place: Place) -> dict[str, Any]:
        place.scratch.mkdir()
        place.variables = {**script.variables, **place.variables}
        output = Output(_show, self.context.progress)
        began = time.monotonic()
        with ExitStack() as held:
            running = self._starter.start(script, place, output.feed, held)
            try:
                code, why = self._await(running, script)
            finally:
                running.stop(0.0)
        output.close()
        result = {
            "exit_code": code,
            "stdout": output.tail("stdout"),
            "stderr": output.tail("stderr"),
            "duration_s": round(time.monotonic() - began, 3),
            "artifacts": [],
            **place.facts,
        }
        if code == 0 and why is None:
            return result
        raise Failure(
            why or _say_end(code, running, output), kind="exit", output=result
        )

    def _await(self, running: Running, script: Script) -> tuple[int, str | None]:
        """Its exit code, and why it was stopped if it was."""
        stopped: list[str] = []
        stopping: list[threading.Thread] = []

        def stop(reason: str) -> None:
            stopped.append(reason)
            ending = threading.Thread(target=running.stop, args=(script.grace_s,))
            stopping.append(ending)
            ending.start()

        self.context.allow_to_stop(script.grace_s + _MARGIN_S)
        self.context.on_stop(stop)
        code = running.wait()
        for thread in stopping:
            thread.join()
        return code or 0, f"the script was stopped: {stopped[0]}" if stopped else None


def _say_end(code: int, running: Running, output: Output) -> str:
    if running.oom_killed:
        return "the script used more memory than its limit"
    said = output.last_line()
    return f"the script ended with exit code {code}" + (f": {said}" if said else "")


def _show(stream: str, data: bytes) -> None:
    target = sys.stderr if stream == "stderr" else sys.stdout
    with contextlib.suppress(ValueError):
        target.buffer.write(data)

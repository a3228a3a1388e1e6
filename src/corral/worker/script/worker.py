"""RunScriptWorker: a task is a command, run in an environment of its own."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from corral.core.tasks.script import Script, read_script
from corral.errors import CorralError, InvalidField
from corral.worker.base import Context, Failure, Lost, Worker
from corral.worker.script.access import read_access
from corral.worker.script.artifacts import keep_artifacts
from corral.worker.script.checkpoints import Checkpoint
from corral.worker.script.exec import ScriptExecs
from corral.worker.script.files import HURRY_S, TaskFiles
from corral.worker.script.output import ScriptOutput, failure_kind
from corral.worker.script.run import AttemptFolders, RunningScript, Starter
from corral.worker.script.secrets import Mask, Masked, fetch_secrets

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
        self._execs = ScriptExecs(self._access)

    def start(self) -> None:
        self._starter.sweep()
        # In a thread: an engine takes longer to answer than the first task may wait.
        threading.Thread(target=self._starter.sweep_containers, daemon=True).start()

    def run(self, payload: Any) -> dict[str, Any]:
        try:
            script = read_script(payload)
            with self._place() as place:
                return self._run_in(script, place)
        except CorralError as error:
            if error.details.get("lost"):
                raise Lost(error.message) from error
            output = getattr(error, "output", None)
            shown = {"output": output} if output else None
            raise Failure(error.message, kind=error.code, output=shown) from error
        except OSError as error:  # a full disk, above all
            why = error.strerror or str(error)
            raise Failure(f"the node could not run it: {why}", kind="os") from error

    def run_beside(self, id_: str, key: tuple[str, int], command: list[str]) -> None:
        """Run a command in the environment of the script that runs."""
        self._execs.start(id_, key, command)

    @contextmanager
    def _place(self) -> Iterator[AttemptFolders]:
        task = self.context
        self._starter.sweep()
        with self._starter.cache.scratch() as scratch:
            artifacts, checkpoint = scratch / "artifacts", scratch / "checkpoint"
            for folder in (artifacts, checkpoint):
                folder.mkdir()
            yield AttemptFolders(
                scratch / "own",
                artifacts,
                checkpoint,
                f"{self._access.worker_id}.{task.task_id}.{task.attempt}",
                {
                    "CORRAL_TASK_ID": task.task_id,
                    "CORRAL_ATTEMPT": str(task.attempt),
                    "CORRAL_ARTIFACTS": str(artifacts),
                    "CORRAL_CHECKPOINT": str(checkpoint),
                    "CORRAL_SCRIPT": "1",
                    "PYTHONUNBUFFERED": "1",
                    **_trace(task),
                },
            )

    def _run_in(self, script: Script, place: AttemptFolders) -> dict[str, Any]:
        place.scratch.mkdir()
        place.shown = self.context.variables
        secrets = fetch_secrets(self._access, self.context) if script.secrets else {}
        place.variables = {**script.variables, **secrets, **place.variables}
        output = ScriptOutput(_show, self.context.progress)
        mask = Mask(secrets.values())
        masked = Masked(mask, output.feed)
        began = time.monotonic()
        with ExitStack() as held:
            held.enter_context(mask.errors())
            files = held.enter_context(self._files())
            checkpoint = self._checkpoint(files, place)
            checkpoint.restore()
            running = self._starter.start(script, place, masked.feed, held)
            try:
                key = (self.context.task_id, self.context.attempt)
                with checkpoint.kept(), self._execs.open(key, running, mask):
                    code, why = self._await(running, script, files)
            finally:
                running.stop(0.0)
            masked.close()
            output.close()
            if running.is_lost and why is None:
                checkpoint.save()
                raise Lost("what ran the script was killed under it")
            took_s = time.monotonic() - began
            is_done = code == 0 and why is None
            kept = self._keep(script, place, files, None if is_done else checkpoint)
        result = {
            "exit_code": code,
            "stdout": output.tail("stdout"),
            "stderr": output.tail("stderr"),
            "duration_s": round(took_s, 3),
            **kept,
            **place.facts,
        }
        if is_done:
            return result
        raise Failure(
            why or _say_end(code, running, output),
            kind=failure_kind(result["stderr"]),
            output=result,
        )

    @contextmanager
    def _files(self) -> Iterator[TaskFiles]:
        files = TaskFiles(self._access, self.context.task_id, self.context.attempt)
        try:
            yield files
        finally:
            files.close()

    def _checkpoint(self, files: TaskFiles, place: AttemptFolders) -> Checkpoint:
        code = self._access.code
        limit, period_s = code.artifact_limit_bytes, code.checkpoint_s
        return Checkpoint(files, place.checkpoint, period_s, limit, self.context.log)

    def _keep(
        self,
        script: Script,
        place: AttemptFolders,
        files: TaskFiles,
        checkpoint: Checkpoint | None,
    ) -> dict[str, Any]:
        """Files the script left, and where to go on from if it did not come far."""
        unsaved = checkpoint.save() if checkpoint is not None else None
        limit = self._access.code.artifact_limit_bytes
        told = keep_artifacts(
            files, place.artifacts, place.folder, script.artifacts, limit
        )
        if unsaved:
            told["left_out"] = "; ".join(filter(None, (unsaved, told.get("left_out"))))
        return told

    def _await(
        self, running: RunningScript, script: Script, files: TaskFiles
    ) -> tuple[int, str | None]:
        """Its exit code, and why it was stopped if it was."""
        stopped: list[str] = []
        stopping: list[threading.Thread] = []

        def stop(reason: str) -> None:
            stopped.append(reason)
            files.hurry(script.grace_s + HURRY_S)
            ending = threading.Thread(target=running.stop, args=(script.grace_s,))
            stopping.append(ending)
            ending.start()

        self.context.allow_to_stop(script.grace_s + HURRY_S + _MARGIN_S)
        self.context.on_stop(stop)
        code = running.wait()
        for thread in stopping:
            thread.join()
        return code or 0, f"the script was stopped: {stopped[0]}" if stopped else None


def _say_end(code: int, running: RunningScript, output: ScriptOutput) -> str:
    if running.oom_killed:
        return "the script used more memory than its limit"
    said = output.last_line()
    return f"the script ended with exit code {code}" + (f": {said}" if said else "")


def _trace(task: Context) -> dict[str, str]:
    """Names that libraries for tracing look for, too."""
    told = {"CORRAL_REQUEST_ID": task.request_id, "TRACEPARENT": task.traceparent}
    return {name: value for name, value in told.items() if value}


def _show(stream: str, data: bytes) -> None:
    target = sys.stderr if stream == "stderr" else sys.stdout
    with contextlib.suppress(ValueError):
        target.buffer.write(data)

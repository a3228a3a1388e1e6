"""Files that a runner left beside a result, kept as artifacts of their task.

The supervisor sends them: a runner, which runs the user's code, has no key.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from corral.worker.protocol import LeftFilesFrame

if TYPE_CHECKING:
    from corral.worker.script.access import ScriptAccess

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_HURRY_S = 30.0


class Leftovers:
    """Keeps what is left; what cannot be kept is said in the log, and no more."""

    def __init__(self, access: Callable[[], ScriptAccess]) -> None:
        self._access = access

    def keep(self, left: Sequence[LeftFilesFrame]) -> None:
        """Before the outcomes are told: after that the attempts are not ours."""
        for each in left:
            why = self._keep(each)
            if why:
                log.warning("files of task %s: %s", each.task_id, why)

    def _keep(self, left: LeftFilesFrame) -> str | None:
        # Late: hardly any task leaves files, and this needs an HTTP client.
        from corral.worker.script.artifacts import keep_artifacts
        from corral.worker.script.files import TaskFiles

        access = self._access()
        files = TaskFiles(access, left.task_id, left.attempt)
        files.hurry(_HURRY_S)
        try:
            with tempfile.TemporaryDirectory() as folder:
                for name, data in left.files.items():
                    if _NAME.fullmatch(name):
                        (Path(folder) / name).write_bytes(data)
                limit = access.code.artifact_limit_bytes
                told = keep_artifacts(files, Path(folder), None, (), limit)
        except OSError as error:
            return error.strerror or str(error)
        finally:
            files.close()
        said: str | None = told.get("left_out")
        return said

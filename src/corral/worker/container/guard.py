"""Our end of the guardian process: started with an engine, ended by letting go."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

from corral.errors import WorkerError
from corral.worker.pool.transport import child_environment

END_S = 60.0
_AGENT_MARK = "CORRAL_AGENT_MARK"


class Guard:
    """While this is open our containers are ours; afterwards they are removed."""

    def __init__(self, owner: str, host: str = "", podman: str = "") -> None:
        self.owner = owner
        self.podman = podman
        self._child = subprocess.Popen(
            [sys.executable, "-m", "corral.worker.container.guardian"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            # Whoever kills our group must not hit it.
            start_new_session=True,
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        given = {"owner": owner, "host": host, "podman": podman}
        with contextlib.suppress(BrokenPipeError):  # killed already, and says nothing
            self._child.stdin.write(json.dumps(given).encode() + b"\n")
            self._child.stdin.flush()
        said = self._child.stdout.readline().decode().strip()
        if not said or said.startswith("error: "):
            self.close()
            why = said.removeprefix("error: ") or "its guardian was killed"
            raise WorkerError(
                f"the container engine does not start: {why}", lost=not said
            )
        self.host = said

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def close(self) -> None:
        """Have every container of ours removed, and the service ended."""
        with contextlib.suppress(OSError):
            self._child.stdin.close()  # type: ignore[union-attr]
        self._child.stdout.close()  # type: ignore[union-attr]
        self._child.wait(END_S)


def _environment() -> dict[str, str]:
    """Without the agent's mark, by which all that a dead worker left is killed.

    The guardian, the service and what watches over containers outlive it for as long
    as it takes to remove them.
    """
    return {n: text for n, text in child_environment().items() if n != _AGENT_MARK}

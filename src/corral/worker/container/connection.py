"""The way to an engine: its address, the SDK's client, and who guards what is started.

It is made anew when whoever kept it open was killed; containers live on meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
import uuid
from typing import Any, Protocol

from docker import APIClient
from docker.errors import APIError, DockerException, ImageNotFound

from corral.errors import WorkerError
from corral.process import spawn
from corral.process.keep_alive import python_command
from corral.worker.pool.transport import child_environment

END_S = 60.0
CALL_S = 60
KNOCK_S = 5.0
BACK_S = 15.0
LOOK_S = 0.05
POOL = 64
# A connection that breaks below the SDK is an OSError, too.
ENGINE_FAULTS = (DockerException, OSError)


class GuardianProcess:
    """While this is open our containers are ours; afterwards they are removed."""

    def __init__(
        self, owner: str, host: str = "", podman: str = "", may_log_in: bool = False
    ) -> None:
        self.owner = owner
        self.podman = podman
        self.may_log_in = may_log_in
        self._child = subprocess.Popen(
            python_command("corral.worker.container.guardian"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            # Whoever kills our group must not hit it.
            start_new_session=True,
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        given = {"owner": owner, "host": host, "podman": podman, "login": may_log_in}
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
    return {n: text for n, text in child_environment().items() if n != spawn.MARK}


class EngineAccess(Protocol):
    """How an engine is reached."""

    api: Any

    def renew(self) -> bool:
        """After a call that was not answered: is it worth another try?"""


class EngineConnection:
    """Safe to use from several threads. Its `api` may be another after `renew`.

    Raises:
        ENGINE_FAULTS: nobody answers at `host`.
    """

    def __init__(self, host: str, guard: GuardianProcess | None = None) -> None:
        self.host = host
        self.owner = guard.owner if guard else uuid.uuid4().hex
        self._guard = guard
        self.podman = guard.podman if guard else ""
        self._may_log_in = guard.may_log_in if guard else False
        self._lock = threading.Lock()
        self._is_closed = False
        # Any: parts of the SDK's types are missing.
        self.api: Any = _connect(host)

    def guarded(self) -> None:
        """See to it that what is started from now on ends with us at the latest."""
        with self._lock:
            self._have_guard()

    def renew(self) -> bool:
        """Wait for an engine that is on its way back, or start our own again."""
        give_up_at = time.monotonic() + BACK_S
        with self._lock:
            while not self._is_closed and time.monotonic() < give_up_at:
                try:
                    self._have_guard()
                    knock(self.host)
                except (WorkerError, *ENGINE_FAULTS):
                    time.sleep(LOOK_S)
                else:
                    return True
        return False

    def close(self) -> None:
        """Have everything removed that we started."""
        with self._lock:
            self._is_closed = True
            self.api.close()
            if self._guard is not None:
                self._guard.close()
                self._guard = None

    def _have_guard(self) -> None:
        if self._guard is not None and self._guard.is_alive:
            return
        if self._guard is not None:
            self._guard.close()
        host = "" if self.podman else self.host
        self._guard = GuardianProcess(
            self.owner, host, self.podman, may_log_in=self._may_log_in
        )
        if self.podman:
            before, self.api = self.api, _connect(self._guard.host)
            self.host = self._guard.host
            before.close()


def knock(host: str) -> None:
    """Raises OSError where nobody listens."""
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(KNOCK_S)
            probe.connect(os.fspath(host.removeprefix("unix://")))


def _connect(host: str) -> Any:
    # First, as the SDK leaves a socket open when nobody answers.
    knock(host)
    return APIClient(base_url=host, version="auto", timeout=CALL_S, max_pool_size=POOL)


# An engine's complaints, as one line that says what to do.

# Both engines pass on the words of the program that starts containers.
_NO_COMMAND = ("executable file not found", "no such file or directory", "not found in")
_NO_RIGHT = ("permission denied", "exec format error", "is a directory")
_NO_LOGIN = (
    "unauthorized",
    "authentication required",
    "access denied",
    "no basic auth",
)
LONGEST = 300


def one_line(error: BaseException | str) -> str:
    """The engine's own words, on one line."""
    told = getattr(error, "explanation", None) or str(error)
    if isinstance(told, bytes):
        told = told.decode("utf-8", "replace")
    text = " ".join(str(told).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def of_image(image: str, error: DockerException | None) -> WorkerError:
    """It is not on the node, and pulling was not allowed or failed with `error`."""
    why = f": {one_line(error)}" if error else ", and this node does not pull images"
    if any(word in why.lower() for word in _NO_LOGIN):
        why += " (CORRAL_CONTAINER_LOGIN lets this node use its own login)"
    return WorkerError(
        f"image {image!r} is not on this node{why}; check its name, or get it there "
        f"with `docker pull {image}`",
        image=image,
    )


def of_start(image: str, argv: tuple[str, ...], error: APIError) -> WorkerError:
    """The container was refused, or its command could not be started."""
    if isinstance(error, ImageNotFound):
        return of_image(image, error)
    told = one_line(error)
    command = argv[0] if argv else ""
    if any(words in told for words in _NO_COMMAND) and _is_about(command, told):
        return WorkerError(
            f"command {command!r} is not in image {image!r}", image=image, missing=True
        )
    if any(words in told for words in _NO_RIGHT) and _is_about(command, told):
        return WorkerError(
            f"command {command!r} cannot be started in image {image!r}: {told}",
            image=image,
        )
    return WorkerError(f"no container of {image!r} can be started: {told}", image=image)


def _is_about(command: str, told: str) -> bool:
    return bool(command) and f'"{command}"' in told.replace("\\", "")

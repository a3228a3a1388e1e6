"""`python -m corral.worker.container.guardian`: outlives us to remove our containers.

It reads its first line, perhaps keeps a Podman service for us, and waits for the end
of its input, which comes with our end, however sudden. Then it removes every container
that carries our label, ends the service, and goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from corral.process import group, keep_alive
from corral.worker import temporary

SERVICE_START_S = 30.0
SERVICE_END_S = 10.0
TICK_S = 0.05
SERVICE = "podman"


def main() -> None:
    given = json.loads(sys.stdin.buffer.readline())
    # Not our parent's troubles: only the end of the input counts, or a plain request.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    podman, may_log_in = given["podman"], given["login"]
    service = PodmanService(podman, may_log_in=may_log_in) if podman else None
    try:
        host = service.start() if service else given["host"]
        _say(host)
        with contextlib.suppress(SystemExit):
            _await_end(service)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _sweep(host, given["owner"], service)
        forget_folders(given["owner"])
    except ServiceError as error:
        _say(f"error: {error}")
    finally:
        if service:
            service.stop()


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _await_end(service: PodmanService | None) -> None:
    """Until our input ends; a service that is killed meanwhile is started again."""
    if service is None:
        sys.stdin.buffer.read()
        return
    wake_in, wake_out = os.pipe()
    os.set_blocking(wake_out, False)
    signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([0, wake_in], [], [])
        if wake_in in ready:
            os.read(wake_in, 4096)
            service.keep()
        if 0 in ready and not os.read(0, 4096):
            return


class _Direct:
    """The engine as the guardian reaches it."""

    def __init__(self, host: str, service: PodmanService | None) -> None:
        # Late: this process mostly waits, and should be small while it does.
        from docker import APIClient

        if service:
            service.keep()
        self.api = APIClient(base_url=host, version="auto")
        self._service = service

    def renew(self) -> bool:
        return self._service is not None and self._service.keep()


def _sweep(host: str, owner: str, service: PodmanService | None) -> None:
    from corral.worker.container.container import remove
    from corral.worker.container.request import OWNER

    way = _Direct(host, service)
    found = way.api.containers(all=True, filters={"label": f"{OWNER}={owner}"})
    for container in found:
        remove(way, container["Id"])


def run_prefix(owner: str) -> str:
    """How the folders of an owner's runners are named."""
    return f"corral-run-{owner[:12]}-"


def forget_folders(owner: str) -> None:
    """Remove what the runners of an owner that is gone spoke through."""
    for folder in Path(tempfile.gettempdir()).glob(run_prefix(owner) + "*"):
        shutil.rmtree(folder, ignore_errors=True)


class ServiceError(Exception):
    """Podman's service does not come up."""


class PodmanService:
    """Podman's API on a socket that nobody else finds."""

    def __init__(self, podman: str, *, may_log_in: bool = False) -> None:
        self._podman = podman
        self._may_log_in = may_log_in
        temporary.forget_dead(SERVICE)
        self._folder = Path(tempfile.mkdtemp(prefix=temporary.prefix(SERVICE)))
        self._child: subprocess.Popen[bytes] | None = None

    def keep(self) -> bool:
        """Start it again if it has ended."""
        if self._child is not None and self._child.poll() is not None:
            self.start()
        return True

    def start(self) -> str:
        path = self._folder / "podman.sock"
        path.unlink(missing_ok=True)
        command = [self._podman, "system", "service", "--time=0", f"unix://{path}"]
        with open(self._folder / "log", "wb") as note:
            self._child = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=note,
                stderr=note,
                preexec_fn=partial(group.die_with_parent, os.getpid(), gently=True),
            )
        deadline = time.monotonic() + SERVICE_START_S
        while not _answers(path):
            if self._child.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "log").read_text(errors="replace")
                raise ServiceError(" ".join(said.split())[-300:] or "no answer")
            time.sleep(TICK_S)
        return f"unix://{path}"

    def _environment(self) -> dict[str, str]:
        """With a file of no logins, unless those of the account may count."""
        if self._may_log_in:
            return dict(os.environ)
        none = self._folder / "auth.json"
        none.write_text("{}", encoding="utf-8")
        return {**os.environ, "REGISTRY_AUTH_FILE": str(none)}

    def stop(self) -> None:
        if self._child is not None:
            keep_alive.stop(self._child, SERVICE_END_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(os.fspath(path)) == 0


if __name__ == "__main__":
    main()

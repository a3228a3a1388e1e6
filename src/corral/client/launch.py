"""Starts a manager or a node as a process of its own that ends with this one."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import urlsplit

from corral.client.face import Client
from corral.client.persistence import Patience
from corral.errors import AlreadyRunning, CorralError

STOP_S = 20.0
_CORRAL = (sys.executable, "-m", "corral")


@dataclass
class Process:
    """A Corral process this one started."""

    url: str
    log: Path
    ready: Callable[[], bool] = field(repr=False)
    connect: Callable[[], Client] = field(repr=False)
    running: subprocess.Popen[bytes] = field(repr=False)

    @cached_property
    def client(self) -> Client:
        """Made when first used: the key file is there once the process is ready."""
        return self.connect()

    @property
    def is_over(self) -> bool:
        return self.running.poll() is not None

    def is_ready(self) -> bool:
        with contextlib.suppress(CorralError):
            return self.ready()
        return False

    def last_word(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else "it said nothing"
        return "it left no log"

    def stop(self, *, block: bool) -> None:
        if self.is_over:
            return
        self.running.terminate()
        if block:
            try:
                self.running.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.running.kill()


def launch_manager(url: str | None, host: str, port: int, *, show: bool) -> Process:
    """`corral up` without an agent, in a data folder of this port's own."""
    from corral.settings import load

    where = urlsplit(url) if url else None
    host, port = (where.hostname or host, where.port or port) if where else (host, port)
    settings = load()
    home = settings.home if port == settings.port else settings.home / f"port-{port}"
    address = f"http://{host}:{port}"
    if _answers(address):
        raise AlreadyRunning(f"something answers at {address} already")
    command = [*_CORRAL, "up", "--no-agent", "--home", str(home)]
    command += ["--host", host, "--port", str(port)]
    if show:
        sys.stderr.write(f"starting a manager at {address}\n")
    log = home / "launch.log"
    running = _start(command, log, {})

    def is_ready() -> bool:
        return (home / "admin.key").exists() and _answers(address)

    return Process(address, log, is_ready, partial(Client, address, home=home), running)


def launch_node(cluster_url: str, name: str, api_key: str | None) -> Process:
    """`corral join` without workers, labelled with the URL it is known by."""
    from corral.settings import load

    client = _manager(cluster_url, api_key)
    token = client.join_token(uses=1).token
    place = urlsplit(name)
    label = f"node-{place.hostname}-{place.port}"
    home = load().home / "nodes" / label
    command = [*_CORRAL, "join", cluster_url, "--name", label, "--no-worker"]
    command += ["--label", f"url={name}", "--home", str(home)]
    log = home / "launch.log"
    running = _start(command, log, {"CORRAL_JOIN_TOKEN": token})

    def is_ready() -> bool:
        return any(n.hostname == label and n.status == "online" for n in client.nodes())

    return Process(name, log, is_ready, lambda: client, running)


def _manager(url: str, api_key: str | None) -> Client:
    """A client with the key of the manager that was launched on that port."""
    from corral.settings import load

    port = urlsplit(url).port
    home = load().home / f"port-{port}"
    known = home if (home / "admin.key").exists() else None
    return Client(url, api_key, home=known)


def _start(
    command: list[str], log: Path, extra: dict[str, str]
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("wb") as file:
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **extra},
        )
    atexit.register(_end, running)
    return running


def _end(running: subprocess.Popen[bytes]) -> None:
    if running.poll() is None:
        running.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(STOP_S)


def _answers(address: str) -> bool:
    with Client(address, "", patience=Patience(0.0, 0.0)) as client:
        try:
            client.health()
        except CorralError:
            return False
        return True

"""Starts managers, nodes and workers, and finds the keys to talk to them with."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from corral.client.client import Client
from corral.client.http.manager_address import Target, find_target
from corral.client.http.retry import Patience
from corral.errors import (
    AlreadyRunning,
    CorralError,
    Forbidden,
    InvalidField,
    Unreachable,
    WorkerError,
)
from corral.process import keep_alive
from corral.process.log_file import last_line
from corral.relay.manager_link import HttpLink
from corral.relay.port import MANAGER, has_port, owners
from corral.trust import is_this_machine

STOP_S = 20.0
_CORRAL = keep_alive.python_command("corral")


@dataclass
class LaunchedProcess:
    """A Corral process this one started.

    `ready` raises WorkerError when it will never be.
    """

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
        try:
            return self.ready()
        except WorkerError:
            raise
        except CorralError:
            return False

    def last_word(self) -> str:
        return last_line(self.log, 0) or "it said nothing"

    def wait(self, timeout_s: float, *, show: bool) -> None:
        """Return when it is ready, with a spinner in a terminal if `show`.

        Raises:
            Unreachable: it ended, or was not ready in time.
            WorkerError: it cannot become ready; the reason is told.
        """
        ends = time.monotonic() + timeout_s
        with _spinner(f"starting {self.url}", show=show):
            try:
                while not self.is_ready():
                    if self.is_over or time.monotonic() > ends:
                        text = f"{self.url} did not come up: {self.last_word()}"
                        raise Unreachable(text, status=503)
                    time.sleep(_LOOK_S)
            except CorralError:
                self.stop(block=True)
                raise

    def stop(self, *, block: bool) -> None:
        if self.is_over:
            return
        if block:
            keep_alive.stop(self.running, STOP_S)
        else:
            self.running.terminate()


@contextlib.contextmanager
def _spinner(text: str, *, show: bool) -> Iterator[None]:
    if not (show and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def start(
    command: Sequence[str], log: Path, extra: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("wb") as file:
        running = subprocess.Popen(
            [*_CORRAL, *command, "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(extra or {})},
        )
    atexit.register(keep_alive.ask_to_stop, running, STOP_S)
    return running


_LOOK_S = 0.1
_managers: list[LaunchedProcess] = []
"""What this process launched; the last that runs is the one nobody has to name."""


def address(url: str | None, host: str, port: int) -> str:
    """Where a service is to be: `url`, else host and port.

    Raises:
        AlreadyRunning: something answers there already.
        InvalidField: it is not http://host:port.
    """
    wanted = (url or f"http://{host}:{port}").rstrip("/")
    if not has_port(wanted):
        raise InvalidField(f"{wanted!r} does not read http://host:port", field="url")
    if _is_taken(*_place(wanted)):
        text = f"something answers at {wanted} already"
        raise AlreadyRunning(text, status=400)
    return wanted


def _is_taken(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
        return True
    return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def launch_manager(where: str) -> LaunchedProcess:
    """`corral up` without an agent, in a data folder of this port's own."""
    from corral.settings import load

    place, settings = urlsplit(where), load()
    port = place.port or settings.port
    home = settings.home if port == settings.port else settings.home / f"port-{port}"
    command = ["up", "--no-agent", "--home", str(home)]
    command += ["--host", str(place.hostname), "--port", str(port)]
    log = home / "launch.log"
    running = start(command, log)

    def is_ready() -> bool:
        return (home / "admin.key").exists() and _answers(where)

    connect = partial(Client, where, home=home)
    _managers.append(LaunchedProcess(where, log, is_ready, connect, running))
    return _managers[-1]


def launch_node(
    cluster_url: str | None, url: str, api_key: str | None, ports: Sequence[int]
) -> LaunchedProcess:
    """`corral join` without workers, answering under its URL."""
    target = manager_target(cluster_url, api_key)
    label = _label("node", url)
    more = ["--url", url, "--no-worker"]
    if ports:
        more += ["--label", f"worker_ports={','.join(map(str, ports))}"]
    with client_of(target) as client:
        token = client.join_token(uses=1).token
    running, log = _join(target, label, more, token)

    def is_ready() -> bool:
        with client_of(target) as client:
            nodes = client.nodes()
        is_up = any(n.hostname == label and n.status == "online" for n in nodes)
        return is_up and _is_taken(*_place(url))

    return LaunchedProcess(url, log, is_ready, partial(client_at, url, target), running)


def launch_worker(
    spec: Mapping[str, Any],
    cluster_url: str | None,
    api_key: str | None,
    paths: Sequence[str],
) -> tuple[LaunchedProcess, bool]:
    """A node with this one worker, and whether its manager is there yet.

    Without a manager the process waits for one, and for its key.
    """
    target = manager_target(cluster_url, api_key)
    url = str(spec["url"])
    more = ["--given", json.dumps(spec), "--label", "for_worker=true"]
    token = _token(target)
    if token is None:
        more += _key_homes(target.url)
    extra = {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
    running, log = _join(target, _label("worker", url), more, token, extra)
    ready = partial(_is_worker_ready, url, cluster_url, api_key)
    connect = partial(_worker_client, url, cluster_url, api_key)
    return LaunchedProcess(url, log, ready, connect, running), token is not None


def _token(target: Target) -> str | None:
    quick = Patience(0.0, 0.0)
    key, ca_file = target.api_key or "", target.ca_file
    try:
        with Client(target.url, key, ca_file=ca_file, patience=quick) as client:
            return client.join_token(uses=1).token
    except Unreachable:
        return None


def _is_worker_ready(url: str, cluster_url: str | None, api_key: str | None) -> bool:
    from corral.client.job_api.service import ClusterConnection

    target = manager_target(cluster_url, api_key)
    with client_of(target) as client:
        found = ClusterConnection(target.url, client)
        seen = found.get_worker_status_by_url(worker_url=url)
        if seen.status == "error":
            raise WorkerError(f"{url}: {client.worker(seen.worker_id).error}")
    return seen.status in ("idle", "running")


def _worker_client(url: str, cluster_url: str | None, api_key: str | None) -> Client:
    return client_at(url, manager_target(cluster_url, api_key))


def manager_target(url: str | None, api_key: str | None) -> Target:
    """The manager to belong to, with the key of the one launched on that port."""
    from corral.settings import load

    ours = [process.url for process in _managers if not process.is_over]
    if url is None and ours:
        url = ours[-1]
    port = urlsplit(url).port if url else None
    home = load().home / f"port-{port}"
    return find_target(url, api_key, home if (home / "admin.key").exists() else None)


def client_of(target: Target) -> Client:
    return Client(target.url, target.api_key or "", ca_file=target.ca_file)


def client_at(url: str, target: Target) -> Client:
    """A client for a node's or worker's own port, with the key of its manager."""
    _check_owner(url)
    return Client(url, target.api_key or "")


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def _label(kind: str, url: str) -> str:
    host, port = _place(url)
    return f"{kind}-{host}-{port}"


def _key_homes(url: str) -> list[str]:
    from corral.settings import load

    home = load().home
    homes = (home / f"port-{urlsplit(url).port}", home)
    return [part for path in homes for part in ("--key-home", str(path))]


def _join(
    target: Target,
    label: str,
    more: Sequence[str],
    token: str | None,
    extra: Mapping[str, str] | None = None,
) -> tuple[subprocess.Popen[bytes], Path]:
    from corral.settings import load

    home = load().home / "nodes" / label
    command = ["join", target.url, "--name", label, "--home", str(home), *more]
    if target.ca_file:
        command += ["--ca-file", target.ca_file]
    given = {"CORRAL_JOIN_TOKEN": token} if token else {}
    if not token and target.api_key:
        given = {"CORRAL_API_KEY": target.api_key}
    log = home / "launch.log"
    return start(command, log, {**given, **(extra or {})}), log


def _answers(where: str) -> bool:
    with Client(where, "", patience=Patience(0.0, 0.0)) as client:
        try:
            client.health()
        except CorralError:
            return False
        return True


def find_service(url: str, api_key: str | None, timeout_s: float) -> Client:
    """A client for a node or worker that runs, with a key it takes.

    On this machine the port itself says who its manager is, and the key of that one
    is looked for; elsewhere, and to a port of somebody else's, only a key that was
    given is shown.

    Raises:
        Unreachable: nothing answers there in time.
        Forbidden: another user of this machine does.
    """
    patience = Patience(timeout_s, timeout_s)
    if api_key is None and is_this_machine(url):
        # First somebody must be there: whoever came later could be anybody.
        ends = time.monotonic() + timeout_s
        while not _is_taken(*_place(url)):
            if time.monotonic() > ends:
                raise Unreachable(f"nothing answers at {url}", url=url, status=503)
            time.sleep(_LOOK_S)
        _check_owner(url)
        with (
            contextlib.suppress(Unreachable),
            contextlib.closing(HttpLink(url)) as port,
        ):
            if manager := port.ask("GET", "/health").headers.get(MANAGER):
                api_key = manager_target(manager, None).api_key
    return Client(url, api_key, patience=patience)


def _check_owner(url: str) -> None:
    """Before a key that was found, not given, is shown to a port of this machine.

    Any user can listen on a port, and say it is a node's.

    Raises:
        Forbidden: somebody listens there who could not read the key's file.
    """
    from corral.settings import load

    if not is_this_machine(url) or not hasattr(os, "getuid"):
        return
    trusted = {0, os.getuid()}
    with contextlib.suppress(OSError):
        trusted.add(load().home.stat().st_uid)
    if owners(_place(url)[1]) - trusted:
        raise Forbidden(
            f"another user of this machine answers at {url}: your key is not shown to "
            "it; give the key that it may see, api_key=...",
            url=url,
        )


def await_end(url: str, timeout_s: float) -> None:
    """Return when nothing answers at a URL any more, or the time is over."""
    ends = time.monotonic() + timeout_s
    while _is_taken(*_place(url)) and time.monotonic() < ends:
        time.sleep(_LOOK_S)

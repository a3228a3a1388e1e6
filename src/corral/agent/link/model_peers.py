"""Keeps the process that gives this node's model files to others of the cluster.

Only where CORRAL_MODEL_PEERS allows it. It listens on the address by which this node
reaches the manager, and on no other.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from corral.core.backoff import Backoff
from corral.core.nodes.peer import Peer
from corral.process import keep_alive, spawn
from corral.process.log_file import open_log

LOG = logging.getLogger("corral.agent")
ARGV = keep_alive.python_command("corral.worker.depot.peer")
_END_S = 5.0


class PeerProcess:
    """`models` is the node's folder of models; port 0 is any that is free."""

    def __init__(
        self,
        manager_url: str,
        models: str,
        port: int,
        logs: Path,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._manager_url = manager_url
        self._models = models
        self._port = port
        self._log_path = logs / "peer.log"
        self._secret = secrets.token_hex(32)
        self._restarts = keep_alive.Restarts(Backoff(0.5, 30.0))
        self._stopped = threading.Event()
        self._process: spawn.Spawned | None = None
        self._word: Peer | None = None
        self._on_news = on_news

    def word(self) -> Peer | None:
        """What beats tell: where files can be had, and of which models."""
        return self._word

    def start(self) -> None:
        threading.Thread(target=self._keep, name="peer", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        running = self._process
        if running is not None:
            running.kill()

    def _keep(self) -> None:
        self._restarts.keep(self._live, lambda pause_s: not self._stopped.wait(pause_s))

    def _live(self) -> float:
        try:
            self._run(own_address(self._manager_url))
        except OSError as error:
            LOG.warning("models cannot be given to other nodes: %s", error)
        if has_spoken := self._word is not None:
            self._say(None)
        return self._restarts.end(was_good=has_spoken)

    def _run(self, host: str) -> None:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with open_log(self._log_path) as log:
            running = spawn.spawn(ARGV, "", log)
        self._process = running
        if self._stopped.is_set():
            running.kill()
        told = {
            "folder": self._models,
            "host": host,
            "port": self._port,
            "secret": self._secret,
        }
        assert running.stdin is not None
        assert running.stdout is not None
        with running.stdin, running.stdout as lines:
            with contextlib.suppress(OSError):
                running.stdin.write(json.dumps(told).encode() + b"\n")
                running.stdin.flush()
            for line in lines:
                offer = json.loads(line)
                named = f"[{host}]" if ":" in host else host
                url = f"http://{named}:{offer['port']}"
                models = offer["models"]
                self._say(Peer(url, self._secret, models))
        # Its stream has ended, and it does so by itself.
        keep_alive.stop(running, _END_S, None)

    def _say(self, word: Peer | None) -> None:
        self._word = word
        self._on_news()


def own_address(manager_url: str) -> str:
    """The address this machine has on the way to its manager; nothing is sent.

    Raises:
        OSError: there is no such way.
    """
    parts = urlsplit(manager_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as way:
        way.connect(address)
        return str(way.getsockname()[0])

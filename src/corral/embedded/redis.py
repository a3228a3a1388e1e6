"""A Redis of our own in the data folder; it carries orders and may be wiped.

It listens on a unix socket (the stand-in and Windows: a loopback port) and asks for a
generated password, which stands in a 0600 file and never on a command line.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from corral.embedded.binaries import RedisBinary, RedisKind, find_redis
from corral.embedded.folder import Folder, write_private
from corral.embedded.server import Address, free_port, redis_answers
from corral.process.keep_alive import Command, bare_environment, python_command

STOP_SIGNAL = signal.SIGTERM
# After so many deaths in a row its own data are what it dies of.
_DEATHS_OF_BAD_DATA = 2
_DATA_NAMES = ("appendonly.aof", "appendonlydir", "dump.rdb")

_SETTINGS = {
    "daemonize": "no",
    "supervised": "no",
    "protected-mode": "yes",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",
    "logfile": "",
    "loglevel": "notice",
    "always-show-logo": "no",
}

FAKE_WARNING = (
    "no Redis found: using a stand-in that is for trying things out; it is slow, keeps"
    " nothing and does not keep nodes apart. Install redis-server or valkey-server"
)


@dataclass(frozen=True, slots=True)
class Redis:
    """One embedded server. `path` is None where it listens on a port instead."""

    folder: Folder
    binary: RedisBinary
    password: str = field(repr=False)
    path: Path | None
    port: int = 0

    @property
    def name(self) -> str:
        return "redis"

    @property
    def url(self) -> str:
        """As Celery spells it."""
        if self.path is None:
            return f"redis://:{self.password}@127.0.0.1:{self.port}/0"
        return f"redis+socket://:{self.password}@{self.path}?virtual_host=0"

    @property
    def client_url(self) -> str:
        """As redis-py spells it."""
        if self.path is None:
            return self.url
        return f"unix://:{self.password}@{self.path}?db=0"

    @property
    def stop_signal(self) -> int:
        return STOP_SIGNAL

    @property
    def warning(self) -> str | None:
        return FAKE_WARNING if self.binary.kind is RedisKind.FAKE else None

    @property
    def config(self) -> Path:
        return self.folder.redis / "redis.conf"

    def is_ready(self) -> bool:
        place: Address = self.path or ("127.0.0.1", self.port)
        return redis_answers(place, self.password)

    def prepare(self, deaths: int) -> Command:
        """Write the settings; put data aside that it seems to die of."""
        if deaths >= _DEATHS_OF_BAD_DATA:
            _set_aside(self.folder.redis)
        write_private(self.config, _write_settings(self))
        if self.binary.program is None:
            fake = python_command("corral.embedded.fake_redis", str(self.config))
            return Command(fake, dict(os.environ), death_signal=STOP_SIGNAL)
        return Command(
            (str(self.binary.program), str(self.config)),
            bare_environment(),
            cwd=self.folder.redis,
            death_signal=STOP_SIGNAL,
        )


def open_redis(folder: Folder, *, tcp: bool = sys.platform == "win32") -> Redis:
    """Choose a server for this folder; the caller holds the folder's lock.

    Raises:
        EmbeddedError: when there is none to choose from.
    """
    binary = find_redis()
    tcp = tcp or binary.kind is RedisKind.FAKE
    return Redis(
        folder,
        binary,
        folder.secret("redis"),
        None if tcp else folder.socket_folder() / "redis.sock",
        free_port() if tcp else 0,
    )


def _write_settings(server: Redis) -> str:
    settings = dict(_SETTINGS)
    settings["dir"] = str(server.folder.redis)
    settings["requirepass"] = server.password
    settings["port"] = str(server.port)
    if server.path is None:
        settings["bind"] = "127.0.0.1"
    else:
        settings |= {"unixsocket": str(server.path), "unixsocketperm": "700"}
    return "".join(f"{name} {_quote(value)}\n" for name, value in settings.items())


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _set_aside(folder: Path) -> None:
    """Start empty rather than never: no task is lost with Redis's data."""
    shelf = folder / f"broken-{time.strftime('%Y%m%d-%H%M%S')}"
    for name in _DATA_NAMES:
        if (folder / name).exists():
            shelf.mkdir(mode=0o700, exist_ok=True)
            (folder / name).rename(shelf / name)

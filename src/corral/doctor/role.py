"""What this machine is to a cluster: its settings, its data folder and who has it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from corral.agent.link import identity
from corral.agent.link.identity import Identity
from corral.doctor.check import CheckResult, ok, problem, warn
from corral.embedded.folder import LOCK, Folder, FolderState, load_state
from corral.errors import SettingsError
from corral.process.spawn import is_alive

if TYPE_CHECKING:
    from corral.settings import Settings

LOCAL_NODE = "local"


@dataclass(frozen=True, slots=True)
class AgentFolder:
    """An agent's folder below the home, and its credential."""

    name: str
    folder: Path
    identity: Identity


@dataclass(frozen=True, slots=True)
class Role:
    """`is_manager`: stores and a manager are, or may be, run from this home."""

    folder: Folder
    state: FolderState | None
    nodes: tuple[AgentFolder, ...]
    is_manager: bool

    @property
    def is_running(self) -> bool:
        return self.state is not None and self.state.is_running

    @property
    def node_name(self) -> str:
        return self.nodes[0].name if len(self.nodes) == 1 else LOCAL_NODE


@dataclass(frozen=True, slots=True)
class FolderHolder:
    """Who has the data folder: the pid of `corral up`, and what a dead one left.

    `is_ready` is false while it starts or stops; `owner` is set when the folder is
    another user's.
    """

    home: str
    pid: int | None = None
    is_ready: bool = False
    children: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    owner: str = ""


def look(home: Path) -> Role:
    """Reads the data folder; what cannot be read counts as not there."""
    folder = Folder(home)
    nodes = tuple(_nodes(folder))
    has_stores = any(_exists(p) for p in (folder.admin_key, home / LOCK))
    state = load_state(folder)
    return Role(folder, state, nodes, has_stores or not nodes)


def _nodes(folder: Folder) -> list[AgentFolder]:
    try:
        places = sorted(folder.agents.iterdir())
    except OSError:
        return []
    found = []
    for place in places:
        try:
            known = identity.load(place)
        except OSError:
            continue
        if known is not None:
            found.append(AgentFolder(place.name, place, known))
    return found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def look_holder(role: Role) -> FolderHolder:
    """Who has the data folder now."""
    home, state = str(role.folder.home), role.state
    if owner := _stranger(role.folder.home):
        return FolderHolder(home, owner=owner)
    if state is not None:
        alive = tuple(name for name, mark in state.children.items() if is_alive(mark))
        if state.is_running:
            return FolderHolder(home, state.parent.pid, state.ready, alive)
        return FolderHolder(home, orphans=alive)
    return FolderHolder(home, _holder(role.folder.home / LOCK))


def _holder(lock: Path) -> int | None:
    """The pid in the lock, which a clean stop takes out."""
    try:
        pid = int(lock.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return pid if psutil.pid_exists(pid) else None


def _stranger(home: Path) -> str:
    """Whose folder it is, when it is not this user's."""
    if sys.platform == "win32":
        return ""
    try:
        is_own = home.stat().st_uid == os.geteuid()
        return "" if is_own else home.owner()
    except FileNotFoundError:
        return ""
    except (OSError, KeyError):
        return "another user"


def home(role: Role) -> Iterator[CheckResult]:
    yield judge_holder(look_holder(role))


def judge_holder(told: FolderHolder) -> CheckResult:
    name = "home"
    if told.owner:
        found = f"the data folder {told.home} belongs to {told.owner}"
        return problem(name, found, "run as that user, or choose a folder (--home)")
    if told.pid is not None and told.is_ready:
        parts = ", ".join(told.children) or "nothing"
        return ok(name, f"'corral up' runs on {told.home}, pid {told.pid}: {parts}")
    if told.pid is not None:
        found = f"'corral up' on {told.home}, pid {told.pid}, starts or stops just now"
        return warn(name, found, f"try again in a moment, or see {told.home}/logs")
    if told.orphans:
        found = f"a 'corral up' that was killed left {', '.join(told.orphans)} behind"
        return warn(name, found, "'corral up' ends them when it starts")
    return ok(name, f"nobody runs on {told.home}; 'corral up' can")


def settings(config: Settings, role: Role) -> Iterator[CheckResult]:
    given = [row.name for row in config.rows() if row.origin != "default"]
    yield ok("settings", f"{len(given)} given, the others have their defaults")
    for stranger in config.unknown:
        yield warn("settings", stranger, "'corral config' shows those there are")
    if role.is_manager:
        try:
            config.require_loopback_or_tls()
            config.require_strong_key()
            config.require_encrypted_database()
        except SettingsError as error:
            found, _, fix = error.message.partition(": ")
            yield problem("settings", found, fix)
    yield from _open_doors(config, role)


def _open_doors(config: Settings, role: Role) -> Iterator[CheckResult]:
    """What an administrator allowed, and should know of."""
    from corral.settings import is_loopback

    is_plain = config.allow_plaintext and config.ssl_cert_path is None
    if role.is_manager and is_plain and not is_loopback(config.host):
        found = f"keys travel in plain text to {config.host} (CORRAL_ALLOW_PLAINTEXT)"
        fix = "give it a certificate (CORRAL_SSL_CERT_PATH), or a proxy that has one"
        yield warn("settings", found, fix)
    if config.isolation == "process":
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        who = "root" if is_root else "the agent's user"
        found = f"code of users runs as {who}, without a sandbox (CORRAL_ISOLATION)"
        yield warn("settings", found, "remove CORRAL_ISOLATION, install bubblewrap")

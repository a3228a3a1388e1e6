"""Which machine this is, and what its manager knows of it as a node.

The number that tells machines apart never leaves here but as a hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.manager.nodes.master import MasterConfig
    from corral.settings import Settings

_PLACES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


def machine_id() -> str:
    """The same for every process of this machine, after restarts too.

    With the host's name, since containers of one image may share the rest.
    """
    number = _system_number() or f"{uuid.getnode():x}"
    text = f"corral machine {number} {socket.gethostname()}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _system_number() -> str | None:
    if sys.platform == "win32":
        return _windows_number()
    if sys.platform == "darwin":
        return _mac_number()
    for place in _PLACES:
        with contextlib.suppress(OSError):
            if number := place.read_text(encoding="utf-8").strip():
                return number
    return None


def _mac_number() -> str | None:
    argv = ["/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(argv, capture_output=True, text=True, timeout=5)
        for line in said.stdout.splitlines():
            if "IOPlatformUUID" in line:
                return line.rpartition("=")[2].strip(' "')
    return None


def _windows_number() -> str | None:
    if sys.platform != "win32":
        return None
    import winreg

    place = "SOFTWARE\\Microsoft\\Cryptography"
    with (
        contextlib.suppress(OSError),
        winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key,
    ):
        return str(winreg.QueryValueEx(key, "MachineGuid")[0])
    return None


def master_config(config: Settings) -> MasterConfig:
    """This machine as the manager's own node."""
    from corral import __version__
    from corral.agent.watch.sample import Sampler, capabilities
    from corral.manager.nodes.master import MasterConfig

    return MasterConfig(
        machine=machine_id(),
        hostname=socket.gethostname(),
        read=Sampler(Path(config.home)).read,
        version=__version__,
        capabilities={"hostname": socket.gethostname(), **capabilities()},
        expects_agent=config.agent_workers != "[]",
    )

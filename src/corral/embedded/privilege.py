"""Lets root run PostgreSQL, which refuses to run as root.

First choice is a user namespace in which root looks like an ordinary user: files keep
their owner and their mode. Containers often forbid that; then the program runs as
`nobody` with the one capability that lets it reach a folder below root's home.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from corral.errors import EmbeddedError

_PREFERRED = 1000


def drop_root(data: Path) -> tuple[str, ...]:
    """The words to put before a command that must not be root; none when we are not.

    `data` and all below it become the property of the user the command will be.

    Raises:
        EmbeddedError: when this system offers neither way.
    """
    if sys.platform == "win32" or os.geteuid() != 0:
        return ()
    user, group = _ordinary_user()
    space = ("unshare", "--user", f"--map-user={user}", f"--map-group={group}")
    if _works(space):
        _give(data, 0, 0)
        return space
    other = _as_nobody()
    if _works(other):
        _give(data, *_nobody())
        return other
    raise EmbeddedError(
        "PostgreSQL does not run as root, and neither user namespaces nor setpriv work"
        " here: start corral as another user, or set CORRAL_DATABASE_URL"
    )


def _ordinary_user() -> tuple[int, int]:
    """PostgreSQL looks its user up by number, so it must be one that exists."""
    import pwd

    users = {entry.pw_uid: entry.pw_gid for entry in pwd.getpwall() if entry.pw_uid}
    if _PREFERRED in users:
        return _PREFERRED, users[_PREFERRED]
    return max(users.items(), default=(_PREFERRED, _PREFERRED))


def _nobody() -> tuple[int, int]:
    import pwd

    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return _ordinary_user()
    return entry.pw_uid, entry.pw_gid


def _as_nobody() -> tuple[str, ...]:
    user, group = _nobody()
    return (
        "setpriv",
        f"--reuid={user}",
        f"--regid={group}",
        "--clear-groups",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
    )


def _works(prefix: tuple[str, ...]) -> bool:
    if shutil.which(prefix[0]) is None:
        return False
    command = [*prefix, sys.executable, "-I", "-S", "-c", "import os; os.getuid()"]
    try:
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _give(data: Path, user: int, group: int) -> None:
    if not data.exists() or data.stat().st_uid == user:
        return
    for folder, _, names in os.walk(data):
        for name in (".", *names):
            os.lchown(os.path.join(folder, name), user, group)

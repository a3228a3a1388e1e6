"""Workers' log files: appended to by the worker itself, kept small by the agent."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import IO

from corral.log_line import said_in


def log_path(folder: Path, worker_name: str) -> Path:
    """Names are data: whatever is in one, the file stays in `folder`."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", worker_name).lstrip(".") or "worker"
    return folder / f"{safe[:120]}.log"


def open_log(path: Path) -> IO[bytes]:
    """Open for appending, for this user alone.

    The worker gets this file itself and not a pipe to us: its last words are kept
    when the agent dies first, and a slow agent never holds a worker up.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(handle, "ab", buffering=0)


def rotate(path: Path, limit_bytes: int) -> bool:
    """Keep one older part beside the file; true when it was over its limit.

    Copied and cut rather than renamed, since the worker keeps writing to the file
    it was given; lines written between the two steps are lost.
    """
    try:
        if path.stat().st_size <= limit_bytes:
            return False
        _copy(path, path.with_name(path.name + ".1"))
        os.truncate(path, 0)
    except OSError:
        return False
    return True


def _copy(path: Path, older: Path) -> None:
    try:
        shutil.copyfile(path, older)
        older.chmod(0o600)
    except OSError:
        # No room for a copy: then all the more the log has to be cut.
        older.unlink(missing_ok=True)


def last_line(path: Path, since: int) -> str:
    """The last line written after offset `since`, for an error message."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - 4096) if size >= since else 0)
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return said_in(lines[-1].strip()) if lines else ""

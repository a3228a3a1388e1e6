"""Names in the machine's temporary folder, which tell by a pid whose they are.

Whoever is killed leaves them behind; the next to make one removes those of the dead.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

import psutil

# Start times of processes are told in hundredths, from a clock that may be set.
_SLACK_S = 2.0


def prefix(kind: str) -> str:
    """What a name of this process begins with."""
    return f"corral-{kind}-{os.getpid()}-"


def forget_dead(kind: str) -> None:
    """Remove files and folders of this kind whose process is gone."""
    for place in Path(tempfile.gettempdir()).glob(f"corral-{kind}-*"):
        owner = re.match(rf"corral-{kind}-(\d+)-", place.name)
        if owner is None or _made_by(int(owner[1]), place):
            continue
        # Somebody else's, or removed by another meanwhile.
        with contextlib.suppress(OSError):
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink()


def _made_by(pid: int, place: Path) -> bool:
    """Does it live still? A process that is younger than the file only has its pid."""
    try:
        return psutil.Process(pid).create_time() <= place.stat().st_mtime + _SLACK_S
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
    except (psutil.Error, OSError):
        return True

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


def prefix(kind: str) -> str:
    """What a name of this process begins with."""
    return f"corral-{kind}-{os.getpid()}-"


def forget_dead(kind: str) -> None:
    """Remove files and folders of this kind whose process is gone."""
    for place in Path(tempfile.gettempdir()).glob(f"corral-{kind}-*"):
        owner = re.match(rf"corral-{kind}-(\d+)-", place.name)
        if owner is None or psutil.pid_exists(int(owner[1])):
            continue
        # Somebody else's, or removed by another meanwhile.
        with contextlib.suppress(OSError):
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink()

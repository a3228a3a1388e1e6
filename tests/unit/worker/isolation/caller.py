"""A caller to be killed: starts a family at the level given, says so, and waits."""

from __future__ import annotations

import sys
from pathlib import Path

from corral.worker.isolation import Level, start
from tests.unit.worker.isolation.scene import Heard, family, shell

if __name__ == "__main__":
    _, level, token, folder = sys.argv
    heard = Heard()
    running = start(shell(Path(folder), family(token)), heard, Level(level))
    heard.await_lines(3)
    sys.stdout.write("up\n")
    sys.stdout.flush()
    running.wait()

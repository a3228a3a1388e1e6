"""`python -m corral.agent.probe VENDOR`: one vendor's probe in a process of its own.

Each line on stdin asks for a reading, answered by one JSON line; the end of stdin ends
it. With `--once` it answers once without being asked.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from corral.agent.probe.base import Probe, to_plain
from corral.agent.probe.vendor import VENDORS

LOG = logging.getLogger("corral.agent.probe")
# Longer than anybody waits: ends a reading that hangs when the agent is gone too.
_LONGEST_S = 120.0


def main(argv: list[str]) -> int:
    reader = argparse.ArgumentParser(prog="python -m corral.agent.probe")
    reader.add_argument("vendor", choices=list(VENDORS))
    reader.add_argument("--once", action="store_true")
    reader.add_argument("--skip", type=int, default=0, help="ways to leave out")
    reader.add_argument("--root", type=Path, default=Path("/"), help="for tests")
    told = reader.parse_args(argv)
    probe = VENDORS[told.vendor](told.root, told.skip)
    out = _claim_stdout()
    if told.once:
        return 0 if _answer(probe, out) else 1
    for _ in sys.stdin:
        if not _answer(probe, out):
            # A library that failed is best met anew, in a fresh process.
            return 1
    return 0


def _claim_stdout() -> IO[str]:
    """Ours alone: what libraries print goes to stderr."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _answer(probe: Probe, out: IO[str]) -> bool:
    guard = threading.Timer(_LONGEST_S, os._exit, (3,))
    guard.daemon = True
    guard.start()
    began = time.monotonic()
    answer: dict[str, Any]
    try:
        answer = to_plain(probe.read())
    except Exception as error:
        LOG.exception("the probe failed")
        answer = {"fault": f"{type(error).__name__}: {error}"}
    guard.cancel()
    answer["took_s"] = round(time.monotonic() - began, 4)
    out.write(json.dumps(answer) + "\n")
    out.flush()
    return "fault" not in answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

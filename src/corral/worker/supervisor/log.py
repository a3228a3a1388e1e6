"""A supervisor's own log: on stderr, which is the worker's file, and in `worker.log`.

The second one is for all workers of a machine. The agent keeps both small.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TextIO

from corral.log_line import LineFormatter, Redaction
from corral.worker.assignment import Assignment


def configure(given: Assignment) -> None:
    """Every line of this process names its worker, and none holds a secret."""
    secrets = [given.key, *given.code.git_tokens.values()]
    always = {"worker_id": given.worker_id, "node_id": given.node_id}
    formatter = LineFormatter(given.log_format, Redaction(secrets), always)
    root = logging.getLogger()
    root.handlers[:] = [logging.StreamHandler()]
    root.setLevel(given.log_level.upper())
    if given.log_file is not None:
        try:
            root.addHandler(logging.StreamHandler(_opened(Path(given.log_file))))
        except OSError as error:
            root.warning("cannot write %s: %s", given.log_file, error)
    for handler in root.handlers:
        handler.setFormatter(formatter)
    for name in ("celery", "httpx", "httpcore"):
        # An order a line would be most of what this process does.
        logging.getLogger(name).setLevel(logging.WARNING)


def _opened(path: Path) -> TextIO:
    """For appending, by this user alone; each line is one write."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")

"""What `corral up` and `corral join` do for the Python code that launched them.

They end when it does, however it ends, and a node it started finds its own way in.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from corral.errors import CorralError

if TYPE_CHECKING:
    from corral.core.nodes.worker import WorkerSpec

LOOK_S = 0.5
ASK_S = 0.3


def end_with(parent: int | None) -> None:
    """Stop this process, as a polite signal would, when its parent is gone.

    It looks instead of asking the kernel, which would count the end of the thread
    that started us as the parent's.
    """
    if parent is not None:
        threading.Thread(
            target=_watch, args=(parent,), name="parent", daemon=True
        ).start()


def _watch(parent: int) -> None:
    pause = threading.Event()
    while _is_there(parent):
        pause.wait(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


def _is_there(parent: int) -> bool:
    if sys.platform != "win32":
        return os.getppid() == parent
    import psutil

    return bool(psutil.pid_exists(parent))


def own_token(url: str, homes: list[Path]) -> str:
    """A join token made with a key of this machine, once there is a manager.

    Args:
        url: The manager.
        homes: Data folders that may have its key, by then.
    """
    from corral import settings
    from corral.client import Client
    from corral.client.http.retry import Patience

    has_key = settings.load().api_key is not None

    pause = threading.Event()
    typer.echo(f"waiting for the manager at {url}", err=True)
    while True:
        for home in homes:
            if not has_key and not (home / "admin.key").exists():
                continue
            try:
                with Client(url, home=home, patience=Patience(0.0, 0.0)) as client:
                    return client.join_token(uses=1).token
            except CorralError as error:
                typer.echo(f"still waiting: {error.message}", err=True)
        pause.wait(ASK_S)


def given_worker(text: str) -> WorkerSpec:
    """The worker of a node that was started for it alone; `text` is JSON."""
    from corral.core.nodes.worker import WorkerSpec

    told = json.loads(text)
    return WorkerSpec(
        "worker",
        str(told["worker_class"]),
        (),
        dict(told["params"]),
        int(told["concurrency"]),
        url=str(told["url"]),
    )

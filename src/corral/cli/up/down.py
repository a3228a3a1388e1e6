"""`corral down`: stops the cluster that `corral up` runs on a data folder."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from corral.cli.options.connect import reach_of
from corral.cli.terminal.progress import Say, spinner
from corral.cli.up.manager_api import LocalManager
from corral.embedded.folder import Folder, FolderState, load_state
from corral.errors import CorralError, NotFound

STOP_S = 60.0


def down(
    ctx: typer.Context,
    home: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The data folder.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Let running tasks finish first.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long to wait, at each step."),
    ] = None,
) -> None:
    """Stop the cluster on this machine."""
    from corral import settings

    config = settings.load(home=home or reach_of(ctx).home)
    folder = Folder(config.home.absolute())
    state = load_state(folder)
    if state is None or not state.is_running:
        raise NotFound(f"nothing runs on {config.home}")
    with spinner("stopping") as say:
        if drain:
            shown = Path(state.certificate) if state.certificate else None
            manager = LocalManager(state.url, folder.admin_key, shown)
            limit_s = config.drain_timeout_s if timeout is None else timeout
            wait_for_tasks(manager, limit_s, say)
        stop(folder, state, STOP_S if timeout is None else timeout, say)
    typer.echo("stopped")


def wait_for_tasks(manager: LocalManager, timeout_s: float, say: Say) -> None:
    """Hand out no more work and wait for what runs; late tasks go back to the queue."""
    give_up_at = time.monotonic() + timeout_s
    while running := manager.drain():
        if time.monotonic() > give_up_at:
            typer.echo(f"{running} tasks still run; they go back", err=True)
            return
        say(f"draining: {running} tasks still run")
        time.sleep(0.3)


def stop(folder: Folder, state: FolderState, timeout_s: float, say: Say) -> None:
    """Ask the parent to stop and wait until it has.

    Raises:
        CorralError: it still runs after `timeout_s`.
    """
    _ask(folder, state)
    say("stopping agent, manager, Redis and PostgreSQL")
    give_up_at = time.monotonic() + timeout_s
    while state.is_running:
        if time.monotonic() > give_up_at:
            raise CorralError(
                f"pid {state.parent.pid} still runs after {timeout_s:g} s: see"
                f" {folder.logs}"
            )
        time.sleep(0.05)


def _ask(folder: Folder, state: FolderState) -> None:
    if sys.platform == "win32":
        (folder.run / "stop").touch()
        return
    try:
        os.kill(state.parent.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise CorralError(
            f"pid {state.parent.pid} belongs to another user: stop it as that user"
        ) from error

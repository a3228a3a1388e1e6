"""`corral leave`: a machine is no node of its cluster any more."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from corral.cli.options.connect import FIRST_S, connect, reach_of
from corral.cli.terminal import errors, output, progress
from corral.errors import Conflict, NotFound, Unauthenticated

WAIT_S = 75.0
POLL_S = 0.2


def leave(
    ctx: typer.Context,
    node: Annotated[
        str | None,
        typer.Argument(metavar="[NODE]", help="Its id or hostname; else this machine."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also while tasks run; they go back.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which agent here, when there are several."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Trust the manager's certificate by this."),
    ] = None,
) -> None:
    """Stop a node's agent and workers, and forget the node.

    Without NODE it is the agent on this machine, which then forgets who it was; to
    join again it needs a new token.
    """
    if node is None:
        left = _leave_here(ctx, name, force, ca_file)
    else:
        left = _leave_there(ctx, node, force)
    if not left:
        output.hint("it still stops; look again with 'corral nodes'")
        raise typer.Exit(errors.FAILED)
    typer.echo("left")


def _leave_there(ctx: typer.Context, node: str, force: bool) -> bool:
    with connect(ctx) as client, progress.spinner("leaving"):
        node_id = client.find_node(node).node_id
        status = client.remove_node(node_id, force=force)
        give_up_at = time.monotonic() + WAIT_S
        while status != "left" and time.monotonic() < give_up_at:
            time.sleep(POLL_S)
            status = client.node(node_id).status
        return status == "left"


def _leave_here(
    ctx: typer.Context, name: str | None, force: bool, ca_file: Path | None
) -> bool:
    """With the node's own key: nobody else's is on this machine, as a rule."""
    from corral import settings
    from corral.client import Client, Patience

    config = settings.load(home=reach_of(ctx).home)
    path = _credential(config.home / "agents", name)
    who = json.loads(path.read_text(encoding="utf-8"))
    patience = Patience(total_s=WAIT_S, first_s=FIRST_S)
    key, url = str(who["key"]), str(who["manager_url"])
    with Client(url, api_key=key, ca_file=ca_file, patience=patience) as client:
        try:
            status = client.remove_node(str(who["node_id"]), force=force)
        except (Unauthenticated, NotFound):
            # Nobody knows it there any more: what is left is what lies here.
            status = "left"
    give_up_at = time.monotonic() + WAIT_S
    with progress.spinner("leaving"):
        # An agent that runs forgets by itself, when its workers are gone.
        while status == "leaving" and path.exists():
            if time.monotonic() > give_up_at:
                return False
            time.sleep(POLL_S)
    path.unlink(missing_ok=True)
    return True


def _credential(folder: Path, name: str | None) -> Path:
    found = {path.parent.name: path for path in folder.glob("*/credential.json")}
    if name is not None:
        found = {key: path for key, path in found.items() if key == name}
    if not found:
        raise NotFound(f"no agent of a cluster in {folder}: name the node to leave")
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise Conflict(f"several agents are here: choose with --name ({names})")
    return next(iter(found.values()))

"""`corral key create | list | revoke`: keys for people."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import show
from corral.cli.connect import connect
from corral.cli.window import seconds

app = typer.Typer(no_args_is_help=True, help="Keys for people.")


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Whose it is; its tasks and its share go by it."
        ),
    ],
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE", help="read, submit, operate or admin, each more than that."
        ),
    ] = "submit",
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Good for so long: 12h, 30d; else for good."),
    ] = None,
    as_json: show.JsonFlag = False,
) -> None:
    """Make a key, and print it: this once, nobody can ask for it again."""
    ttl_s = None if expires is None else seconds(expires)
    with connect(ctx) as client:
        made = client.create_key(name, role=role, ttl_s=ttl_s)
    if as_json:
        show.echo_json(made.to_dict())
        return
    typer.echo(made.key)
    until = f", until {show.cell(made.expires_at)}" if made.expires_at else ""
    show.hint(f"Keep it: it is shown this once. {name} uses it{until} so:")
    show.hint(f"CORRAL_MANAGER_URL={client.url} CORRAL_API_KEY=KEY corral status")


@app.command("list")
def list_(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """List keys: names, roles and times, never the keys themselves."""
    with connect(ctx) as client:
        found = client.keys()
    if as_json:
        show.echo_values(found)
        return
    show.table(
        ("KEY", "NAME", "ROLE", "STATUS", "CREATED", "EXPIRES", "LAST USED"),
        [
            (
                key.key_id,
                key.name,
                key.role,
                key.status,
                key.created_at,
                key.expires_at or "never",
                key.last_used_at or "never",
            )
            for key in found
        ],
    )


@app.command()
def revoke(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME|ID", help="As 'corral key list' shows it.")
    ],
) -> None:
    """End a key: whoever has it is refused from now on."""
    with connect(ctx) as client:
        gone = client.revoke_key(name)
    typer.echo(f"revoked {gone.name} ({gone.key_id})")

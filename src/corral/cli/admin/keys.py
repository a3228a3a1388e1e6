"""`corral key`: keys for people; `corral token`: join tokens for nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.arguments import seconds
from corral.cli.options.connect import connect
from corral.cli.terminal import output

if TYPE_CHECKING:
    from corral.wire.access import KeyInfo

key_app = typer.Typer(no_args_is_help=True, help="Keys for people.")
token_app = typer.Typer(no_args_is_help=True, help="Make join tokens for nodes.")
_COLUMNS: output.Columns[KeyInfo] = {
    "KEY": lambda key: key.key_id,
    "NAME": lambda key: key.name,
    "ROLE": lambda key: key.role,
    "STATUS": lambda key: key.status,
    "CREATED": lambda key: key.created_at,
    "EXPIRES": lambda key: key.expires_at or "never",
    "LAST USED": lambda key: key.last_used_at or "never",
}


@key_app.command("create")
def create_key(
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
    as_json: output.JsonFlag = False,
) -> None:
    """Make a key, and print it: this once, nobody can ask for it again."""
    ttl_s = None if expires is None else seconds(expires)
    with connect(ctx) as client:
        made = client.create_key(name, role=role, ttl_s=ttl_s)
    if as_json:
        output.echo_json(made.to_dict())
        return
    typer.echo(made.key)
    until = f", until {output.cell(made.expires_at)}" if made.expires_at else ""
    output.hint(f"Keep it: it is shown this once. {name} uses it{until} so:")
    output.hint(f"CORRAL_MANAGER_URL={client.url} CORRAL_API_KEY=KEY corral status")


@key_app.command("list")
def list_(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List keys: names, roles and times, never the keys themselves."""
    with connect(ctx) as client:
        found = client.keys()
    output.show_list(found, _COLUMNS, as_json=as_json)


@key_app.command()
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


# `corral token create`: tokens with which other machines join.


@token_app.callback()
def token() -> None:
    """Make join tokens for nodes."""


@token_app.command("create")
def create_token(
    ctx: typer.Context,
    ttl: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds it is good for.", min=1)
    ] = None,
    uses: Annotated[
        int | None, typer.Option(help="How many machines may use it.", min=1)
    ] = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Make a token for 'corral join', and print it."""
    with connect(ctx) as client:
        made = client.join_token(ttl_s=ttl, uses=uses)
    if as_json:
        output.echo_json(made.to_dict())
        return
    typer.echo(made.token)
    until = f", until {output.cell(made.expires_at)}" if made.expires_at else ""
    output.hint(f"On the other machine{until}: corral join {client.url} --token TOKEN")

"""`corral key`: keys for people; `corral token`: join tokens for nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.arguments import read_labels, seconds
from corral.cli.options.connect import connect
from corral.cli.terminal import output

if TYPE_CHECKING:
    from corral.wire.access import JoinTokenInfo, KeyInfo

key_app = typer.Typer(no_args_is_help=True, help="Keys for people.")
token_app = typer.Typer(no_args_is_help=True, help="Join tokens for nodes.")
_COLUMNS: output.Columns[KeyInfo] = {
    "KEY": lambda key: key.key_id,
    "NAME": lambda key: key.name,
    "ROLE": lambda key: key.role,
    "STATUS": lambda key: key.status,
    "CREATED": lambda key: key.created_at,
    "EXPIRES": lambda key: key.expires_at or "never",
    "LAST USED": lambda key: key.last_used_at or "never",
}
_TOKENS: output.Columns[JoinTokenInfo] = {
    "TOKEN": lambda token: token.token_id,
    "STATUS": lambda token: token.status,
    "USES LEFT": lambda token: token.uses_left,
    "NODES MAY CLAIM": lambda token: _granted(token),
    "CREATED": lambda token: token.created_at,
    "EXPIRES": lambda token: token.expires_at or "never",
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


# `corral token`: what lets other machines join.


@token_app.command("create")
def create_token(
    ctx: typer.Context,
    ttl: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds it is good for.", min=1)
    ] = None,
    uses: Annotated[
        int | None, typer.Option(help="How many machines may use it.", min=1)
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Label nodes that join so; they may claim no others. Repeatable.",
        ),
    ] = None,
    taint: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY[=VALUE]", help="Taint them so; repeatable."),
    ] = None,
    job_type: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="What workers of their own may serve, and nothing else; repeatable.",
        ),
    ] = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Make a token for 'corral join', and print it."""
    with connect(ctx) as client:
        made = client.join_token(
            ttl_s=ttl,
            uses=uses,
            labels=read_labels(label),
            taints=taint or (),
            job_types=job_type or (),
        )
    if as_json:
        output.echo_json(made.to_dict())
        return
    typer.echo(made.token)
    until = f", until {output.cell(made.expires_at)}" if made.expires_at else ""
    output.hint(
        f"On the other machine{until}: CORRAL_JOIN_TOKEN=TOKEN corral join {client.url}"
    )


@token_app.command("list")
def list_tokens(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List join tokens: what they grant and until when, never the tokens themselves."""
    with connect(ctx) as client:
        found = client.join_tokens()
    none = "No join tokens. Make one: corral token create"
    output.show_list(found, _TOKENS, as_json=as_json, none=none)


@token_app.command("revoke")
def revoke_token(
    ctx: typer.Context,
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="As 'corral token list' shows it.")
    ],
) -> None:
    """End a join token; nodes that joined with it stay."""
    with connect(ctx) as client:
        gone = client.revoke_join_token(token_id)
    typer.echo(f"revoked {gone.token_id}")


def _granted(token: JoinTokenInfo) -> str:
    labels = [f"{key}={value}" for key, value in token.labels.items()]
    taints = [f"taint {taint}" for taint in token.taints]
    types = [f"type {name}" for name in token.job_types]
    return ", ".join((*labels, *taints, *types)) or "anything"

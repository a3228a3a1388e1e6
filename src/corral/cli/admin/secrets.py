"""`corral secret set | list | remove`: values for jobs, kept encrypted.

A value is never an argument: other users of a machine can read a command line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.arguments import read_labels
from corral.cli.options.connect import connect
from corral.cli.terminal import output

if TYPE_CHECKING:
    from corral.wire.access import SecretInfo

app = typer.Typer(no_args_is_help=True, help="Values for jobs, kept encrypted.")
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Letters, digits and _, like HF_TOKEN.")
]
_COLUMNS: output.Columns[SecretInfo] = {
    "SECRET": lambda secret: secret.name,
    "JOB TYPES": lambda secret: ", ".join(secret.job_types) or "all",
    "KEYS": lambda secret: ", ".join(secret.keys) or "all",
    "NODES": lambda secret: (
        ", ".join(f"{key}={value}" for key, value in secret.node_labels.items())
        or "all"
    ),
    "SET": lambda secret: secret.created_at,
    "CHANGED": lambda secret: secret.updated_at,
}


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    source: Annotated[
        str | None, typer.Argument(metavar="[-]", help="- reads it from stdin.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read the value from this file."),
    ] = None,
    job_type: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE", help="Only tasks of this type may have it; repeatable."
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only tasks submitted with this key; repeatable."
        ),
    ] = None,
    node_label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only on nodes that a token or an operator gave this; repeatable.",
        ),
    ] = None,
    open_to_all: Annotated[
        bool,
        typer.Option("--open", help="Lift what kept it to some and is not said anew."),
    ] = False,
) -> None:
    """Set a secret; without a file or -, the value is asked for and not shown.

    A new value of a known secret is for those who could have the old one.
    """
    value = _value(source, from_file)
    labels = read_labels(node_label, "--node-label")
    with connect(ctx) as client:
        client.set_secret(
            name,
            value,
            job_types=job_type or ([] if open_to_all else None),
            keys=key or ([] if open_to_all else None),
            node_labels=labels or ({} if open_to_all else None),
        )
    typer.echo(f"set {name}")


def _value(source: str | None, from_file: Path | None) -> str:
    if source not in (None, "-"):
        raise typer.BadParameter(
            "a value is never on the command line: leave it out, or give - or "
            "--from-file",
            param_hint="[-]",
        )
    if source and from_file:
        raise typer.BadParameter("give - or --from-file, not both")
    if from_file is None and source is None:
        asked: str = typer.prompt("Value", hide_input=True, err=True)
        return asked
    raw = sys.stdin.buffer.read() if from_file is None else from_file.read_bytes()
    try:
        # Editors and echo end a file with a line's end that nobody means.
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise typer.BadParameter("a secret is text (UTF-8)") from None


@app.command("list")
def list_(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List secrets: their names and dates, never their values."""
    with connect(ctx) as client:
        found = client.secrets()
    none = "No secrets. Set one: corral secret set NAME"
    output.show_list(found, _COLUMNS, as_json=as_json, none=none)


@app.command()
def remove(ctx: typer.Context, name: Name) -> None:
    """Forget a secret; tasks that still wait for it will fail."""
    with connect(ctx) as client:
        client.remove_secret(name)
    typer.echo(f"removed {name}")

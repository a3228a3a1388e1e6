"""Names that a shell may complete, asked of the cluster; none when it does not say."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli.connect import FIRST_S, reach_of


def model_names(ctx: typer.Context, incomplete: str) -> list[str]:
    from corral.client import Client, Patience
    from corral.errors import CorralError

    reach = reach_of(ctx)
    patience = Patience(total_s=FIRST_S, first_s=FIRST_S)
    try:
        with Client(
            reach.url, home=reach.home, timeout_s=FIRST_S, patience=patience
        ) as client:
            return [n for n in client.model_names() if n.startswith(incomplete)]
    except (CorralError, OSError):
        return []  # Nobody wants to read an error while typing.


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Its name, as tasks give it.", autocompletion=model_names
    ),
]

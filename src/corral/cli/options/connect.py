"""How a command reaches the cluster: the global options and the client they make."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from corral.client import Client

FIRST_S = 1.5
TOTAL_S = 60.0


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """The global options; None where the settings decide."""

    url: str | None = None
    home: Path | None = None


def reach_of(ctx: typer.Context) -> ConnectOptions:
    return ctx.find_object(ConnectOptions) or ConnectOptions()


def connect(ctx: typer.Context) -> Client:
    """A client that says soon when nothing answers, and outlives a restart later."""
    from corral.client import Client, Patience

    reach = reach_of(ctx)
    patience = Patience(total_s=TOTAL_S, first_s=FIRST_S)
    return Client(reach.url, home=reach.home, patience=patience)

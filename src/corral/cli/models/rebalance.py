"""`corral rebalance`: have models go to workers where they are worth more."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli.options.connect import connect
from corral.cli.terminal import output

_HINT = "Nothing to move: no model would be worth more elsewhere than its move costs."


def rebalance(
    ctx: typer.Context,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="S",
            help="memory_optimized: even out memory; load_balanced: more copies of "
            "what is asked for most.",
        ),
    ] = "memory_optimized",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would move.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also to and from workers that are busy.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Move models from crowded workers to those with room, where that pays."""
    with connect(ctx) as client:
        found = client.rebalance(strategy=strategy, force=force, dry_run=dry_run)
    if as_json:
        output.echo_json(found.to_dict())
        return
    if not found.operations:
        output.hint(_HINT)
        return
    output.table(
        ("MODEL", "FROM", "TO", "WHAT", "SAVES", "COSTS"),
        [
            (
                move.model,
                move.from_worker,
                move.to_worker,
                "copy" if move.type == "model_copy" else "move",
                output.took(move.saves_s),
                output.took(move.costs_s),
            )
            for move in found.operations
        ],
    )
    word = "would take" if found.status == "dry_run" else "begun; it takes"
    output.hint(f"{word} about {output.took(found.estimated_duration)}")

"""`corral explain ID`: why a task waits and what would start it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.options import arguments
from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.cli.words.task import should_need, should_take

if TYPE_CHECKING:
    from rich.table import Table

    from corral.wire.tasks import Candidate, CandidateCost, Explanation, Start

_FEW = 8


def explain(
    ctx: typer.Context,
    task_id: arguments.TaskArgument,
    is_all: Annotated[
        bool, typer.Option("--all", help="List every worker, not the nearest few.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Say why a task waits and what would start it, or why it ran where it did."""
    with connect(ctx) as client:
        found = client.explain(task_id, limit=0 if is_all else _FEW)
    if as_json:
        output.echo_json(found.to_dict())
        return
    typer.echo(output.cell(found.headline))
    for grid in grids(found):
        typer.echo()
        output.print_grid(grid)
    left = found.candidates_total - len(found.candidates)
    if left > 0:
        output.hint(f"{left} more worker(s): --all lists them")


def grids(found: Explanation, *, is_narrow: bool = False) -> list[Table]:
    """The facts, and below them the workers that were looked at."""
    drawn = [output.facts_grid(_facts(found))]
    lay_out = _short_candidates if is_narrow else _candidates
    return [*drawn, lay_out(found.candidates)] if found.candidates else drawn


def _facts(found: Explanation) -> Iterable[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [("status", found.status)]
    for number, change in enumerate(found.changes):
        name = "change" if number == 0 else "or"
        rows.append((name, change.message))
        rows.append(("", f"$ {change.command}" if change.command else ""))
    if found.reason is not None and found.line:
        rows.append(("position", f"{found.ahead} before it, {found.line} in its line"))
    if found.estimated_start is not None:
        rows.append(("expected", _start(found.estimated_start)))
    rows.append(("should take", should_take(found.estimated_duration, found.estimate)))
    rows.append(("should need", should_need(found.estimate)))
    if (placed := found.placement) is not None:
        rows += [
            ("sent", placed.at),
            ("cost", _cost(placed.cost)),
            ("in one order", placed.together if placed.together > 1 else None),
            ("passed over", ", ".join(placed.passed_over)),
        ]
    rows += [
        ("attempt", f"{a.attempt}: {a.outcome} on {a.worker_id or 'no worker'}")
        for a in found.attempts
    ]
    return rows


def _start(start: Start) -> str:
    if start.at is None or start.low is None or start.high is None:
        return ""
    low_s = start.in_s - (start.at - start.low).total_seconds()
    high_s = start.in_s + (start.high - start.at).total_seconds()
    about = f"in about {output.took(start.in_s)}"
    span = f"{output.took(low_s)} to {output.took(high_s)}"
    return f"{about}; four of five such tasks: {span}"


def _cost(cost: CandidateCost | None) -> str:
    if cost is None:
        return ""
    parts = [("wait", cost.wait_s), ("load", cost.load_s), ("drop", cost.drop_s)]
    named = [f"{name} {output.took(part)}" for name, part in parts if part]
    return ", ".join([*named, f"run {output.took(cost.run_s)}"])


def _candidates(candidates: list[Candidate]) -> Table:
    rows = []
    for candidate in candidates:
        cost = candidate.cost
        terms = [cost.wait_s, cost.load_s, cost.drop_s, cost.run_s] if cost else []
        cells = [f"{term:.1f}" for term in terms] or [""] * 4
        total = f"{cost.total_s:.1f}" if cost else ""
        where = (candidate.worker_id, candidate.node_id, candidate.verdict)
        rows.append((*where, *cells, total, candidate.message))
    return output.table_grid(
        ("WORKER", "NODE", "VERDICT", "WAIT", "LOAD", "DROP", "RUN", "SECONDS", "WHY"),
        rows,
    )


def _short_candidates(candidates: list[Candidate]) -> Table:
    """For a small screen: the seconds as one."""
    rows = [
        (
            candidate.worker_id,
            candidate.verdict,
            f"{candidate.cost.total_s:.1f}" if candidate.cost else "",
            candidate.message,
        )
        for candidate in candidates
    ]
    return output.table_grid(("WORKER", "VERDICT", "SECONDS", "WHY"), rows)

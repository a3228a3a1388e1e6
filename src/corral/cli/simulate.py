"""`corral simulate`: the same scheduler in virtual time, on other work or workers."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import plot as plots
from corral.cli import progress, show
from corral.cli.connect import connect

if TYPE_CHECKING:
    from corral.scheduler.policy import Policy
    from corral.sim.journal import Journal
    from corral.sim.machine import Machine
    from corral.sim.scenario import Outcome
    from corral.sim.workload import Workload

FLEET = "6x24GB,3x48GB@1.5,3x16GB@0.6"
DOWN_S = 300.0
SYNTHETIC_LOAD = 0.3
_COLUMNS = (
    *("SCENARIO", "MEAN S", "P50", "P99", "P99 HIGH", "IN TIME %"),
    *("LOADS", "LOAD H", "BUSY %", "REDONE", "NEVER RAN"),
)


_Journal = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What `corral record` wrote.")
]
_Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Tasks as CSV: at_s, run_s and more."),
]
_Synthetic = Annotated[
    int | None, typer.Option(metavar="SEED", help="A made-up workload.")
]
_Workers = Annotated[
    str | None,
    typer.Option(metavar="WORKERS", help="On these, like 2x24GB,1x48GB@1.5."),
]
_Add = Annotated[
    str | None,
    typer.Option(metavar="WORKERS", help="Also with these added, like 2x24GB."),
]
_Policies = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="With these policies.")
]
_Load = Annotated[
    float,
    typer.Option(metavar="FACTOR", min=0.001, help="Also with so much more work."),
]
_Utilization = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", min=0.001, max=10, help="Work that fills such a share."
    ),
]
_Fail = Annotated[
    bool, typer.Option("--fail", help="Each worker is down once, for 5 minutes.")
]
_CheckOnly = Annotated[
    bool, typer.Option("--check", help="Only: are the decisions the same again?")
]
_Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw it: .svg, or .png.")
]


@dataclass(frozen=True, slots=True)
class _Basis:
    """What the scenarios start from."""

    workload: Workload
    machines: list[Machine]
    policy: Policy
    policies: str


def simulate(
    ctx: typer.Context,
    journal: _Journal = None,
    trace: _Trace = None,
    synthetic: _Synthetic = None,
    workers: _Workers = None,
    add: _Add = None,
    policy: _Policies = None,
    load: _Load = 1.0,
    utilization: _Utilization = None,
    fail: _Fail = False,
    check: _CheckOnly = False,
    plot: _Plot = None,
    as_json: show.JsonFlag = False,
) -> None:
    """Run the scheduler in virtual time and compare.

    Without a journal, trace or synthetic workload: on what this cluster did lately.
    """
    if sum(given is not None for given in (journal, trace, synthetic)) > 1:
        raise typer.BadParameter("only one of --journal, --trace and --synthetic")
    if plot is not None:
        plots.check(plot)
    if check:
        raise typer.Exit(_check(_journal(ctx, journal), as_json))
    if trace is None and synthetic is None:
        basis = _recorded(_journal(ctx, journal), workers)
    else:
        share = SYNTHETIC_LOAD if trace is None else None
        basis = _made(trace, synthetic, workers or FLEET)
        basis = _filled(basis, utilization or share)
    if fail:
        basis = _failing(basis)
    found = _compare(basis, policy or basis.policies, add, load)
    if as_json:
        show.echo_json([_told(outcome) for outcome in found])
    else:
        _print(found)
    if plot is not None:
        plots.draw(plot, found)
        show.hint(f"drawn: {plot}")


def _journal(ctx: typer.Context, path: Path | None) -> Journal:
    from corral.sim.journal import read_journal

    if path is None:
        with connect(ctx) as client:
            data = client.journal()
    else:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    return read_journal(data.splitlines())


def _check(journal: Journal, as_json: bool) -> int:
    import msgspec

    from corral import __version__
    from corral.sim.journal import check

    found = check(journal)
    if as_json:
        told = msgspec.to_builtins(found)
        show.echo_json({**told, "is_same": found.difference is None})
    elif found.difference is None:
        typer.echo(
            f"the same decisions, bit for bit: {found.events} events, "
            f"{found.plans} plans, {found.orders} orders"
        )
    else:
        other = found.difference
        typer.echo(f"line {other.line}, at {other.now}: decided otherwise")
        typer.echo(f"  recorded: {other.recorded}\n  made now: {other.made}")
        if journal.version != __version__:
            show.hint(f"it was recorded by version {journal.version}")
    return 0 if found.difference is None else 1


def _recorded(journal: Journal, workers: str | None) -> _Basis:
    from corral.sim.history import from_journal
    from corral.sim.machine import parse_fleet

    work, machines = from_journal(journal)
    if workers is not None:
        # Others than they were recorded on: nobody can ask for one of those.
        work, machines = work.anywhere(), parse_fleet(workers)
    return _Basis(work, machines, journal.policy, journal.policy.strategy)


def _made(trace: Path | None, seed: int | None, workers: str) -> _Basis:
    from corral.scheduler.policy import Policy
    from corral.sim.machine import parse_fleet
    from corral.sim.scenario import POLICIES
    from corral.sim.trace import read_trace
    from corral.sim.workload import synthetic

    work = read_trace(trace) if trace is not None else synthetic(seed or 0)
    return _Basis(work, parse_fleet(workers), Policy(), ",".join(POLICIES))


def _filled(basis: _Basis, share: float | None) -> _Basis:
    from corral.sim.machine import speed_of

    if share is None:
        return basis
    work = basis.workload.filling(share, speed_of(basis.machines))
    return replace(basis, workload=work)


def _failing(basis: _Basis) -> _Basis:
    from corral.sim.machine import failing

    machines = failing(basis.machines, basis.workload.span_s, DOWN_S)
    return replace(basis, machines=machines)


def _compare(
    basis: _Basis, names: str, add: str | None, load: float
) -> Sequence[Outcome]:
    from corral.sim.machine import parse_fleet
    from corral.sim.scenario import policies_of, run, scenarios

    more = parse_fleet(add, "added") if add else []
    policies = policies_of(names, basis.policy)
    found = []
    for scenario in scenarios(basis.workload, basis.machines, policies, more, load):
        with progress.bar(f"simulating {scenario.name}") as advance:
            found.append(run(scenario, advance))
    return found


def _told(outcome: Outcome) -> dict[str, object]:
    scenario = outcome.scenario
    return {
        "scenario": scenario.name,
        "policy": scenario.policy.strategy,
        "change": scenario.change,
        "workers": len(scenario.machines),
        **asdict(outcome.figures),
        "curve": [[round(s, 3), pct] for s, pct in outcome.curve],
    }


def _print(found: Sequence[Outcome]) -> None:
    from corral.sim.chart import Bars, terminal_bars

    show.table(_COLUMNS, [_row(outcome) for outcome in found])
    for panel in plots.panels(found):
        if isinstance(panel, Bars):
            typer.echo()
            for line in terminal_bars(panel):
                typer.echo(line)


def _row(outcome: Outcome) -> tuple[str, ...]:
    f = outcome.figures
    high = "" if f.p99_high_s is None else f"{f.p99_high_s:.1f}"
    return (
        outcome.scenario.name,
        *(f"{value:.1f}" for value in (f.mean_s, f.p50_s, f.p99_s)),
        high,
        f"{f.slo_pct:.1f}",
        str(f.loads),
        f"{f.load_hours:.2f}",
        f"{f.utilization_pct:.1f}",
        str(f.redone),
        str(f.left + f.expired),
    )

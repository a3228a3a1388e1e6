"""`corral simulate`: the same scheduler in virtual time, on other work or workers.

`corral record` writes down what the real one decided.
"""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.options.arguments import seconds
from corral.cli.options.connect import connect
from corral.cli.terminal import output, progress
from corral.cli.terminal.output import size_of
from corral.errors import BadRequest
from corral.sim.chart import COLOURS, HEIGHT, WIDTH, Bars, Curves, Panel, svg

if TYPE_CHECKING:
    from corral.scheduler.policy import Policy
    from corral.sim.journal import RecordedJournal
    from corral.sim.machine import Machine
    from corral.sim.scenario import ScenarioOutcome
    from corral.sim.workload import Workload


_DPI = 100
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
    as_json: output.JsonFlag = False,
) -> None:
    """Run the scheduler in virtual time and compare.

    Without a journal, trace or synthetic workload: on what this cluster did lately.
    """
    if sum(given is not None for given in (journal, trace, synthetic)) > 1:
        raise typer.BadParameter("only one of --journal, --trace and --synthetic")
    if plot is not None:
        check_plot(plot)
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
        output.echo_json([_told(outcome) for outcome in found])
    else:
        _print(found)
    if plot is not None:
        draw_plot(plot, found)
        output.hint(f"drawn: {plot}")


def _journal(ctx: typer.Context, path: Path | None) -> RecordedJournal:
    from corral.sim.journal import read_journal

    if path is None:
        with connect(ctx) as client:
            data = client.journal()
    else:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    return read_journal(data.splitlines())


def _check(journal: RecordedJournal, as_json: bool) -> int:
    import msgspec

    from corral import __version__
    from corral.sim.journal import check

    found = check(journal)
    if as_json:
        told = msgspec.to_builtins(found)
        output.echo_json({**told, "is_same": found.difference is None})
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
            output.hint(f"it was recorded by version {journal.version}")
    return 0 if found.difference is None else 1


def _recorded(journal: RecordedJournal, workers: str | None) -> _Basis:
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
) -> Sequence[ScenarioOutcome]:
    from corral.sim.machine import parse_fleet
    from corral.sim.scenario import policies_of, run, scenarios

    more = parse_fleet(add, "added") if add else []
    policies = policies_of(names, basis.policy)
    found = []
    for scenario in scenarios(basis.workload, basis.machines, policies, more, load):
        with progress.bar(f"simulating {scenario.name}") as advance:
            found.append(run(scenario, advance))
    return found


def _told(outcome: ScenarioOutcome) -> dict[str, object]:
    scenario = outcome.scenario
    return {
        "scenario": scenario.name,
        "policy": scenario.policy.strategy,
        "change": scenario.change,
        "workers": len(scenario.machines),
        **outcome.figures.to_dict(),
        "curve": [[round(s, 3), pct] for s, pct in outcome.curve],
    }


def _print(found: Sequence[ScenarioOutcome]) -> None:
    from corral.sim.chart import Bars, terminal_bars

    output.table(_COLUMNS, [_row(outcome) for outcome in found])
    for panel in plot_panels(found):
        if isinstance(panel, Bars):
            typer.echo()
            for line in terminal_bars(panel):
                typer.echo(line)


def _row(outcome: ScenarioOutcome) -> tuple[str, ...]:
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


# `corral record`: the scheduler's journal into a file.


def record(
    ctx: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Where to; packed when it ends in .gz."),
    ],
    since: Annotated[
        str, typer.Option(metavar="TIME", help="At least the last 90, 30m, 24h or 7d.")
    ] = "24h",
) -> None:
    """Write down what the scheduler was told and decided, for `corral simulate`.

    It has ids, types, models, labels and times of tasks; nothing of their inputs.
    """
    with connect(ctx) as client:
        lines = client.journal(seconds(since))
    file.write_bytes(gzip.compress(lines) if file.suffix == ".gz" else lines)
    count = len(lines.splitlines())
    output.hint(f"{count} lines, {size_of(len(lines))}: {file}")


def plot_panels(found: Sequence[ScenarioOutcome]) -> list[Panel]:
    """What is to be seen of some outcomes, side by side."""
    named = [(outcome.scenario.name, outcome) for outcome in found]
    return [
        Bars(
            "mean time from arrival to end, s",
            [(name, o.figures.mean_s) for name, o in named],
        ),
        Bars(
            "tasks that ended within 5 times their own run, %",
            [(name, o.figures.slo_pct) for name, o in named],
        ),
        Curves(
            "percentage of tasks that had ended after ...",
            "seconds from arrival",
            [(name, o.curve) for name, o in named],
            is_log=True,
        ),
    ]


def check_plot(path: Path) -> None:
    """Can a picture of this name be drawn?

    Raises:
        BadRequest: it is of a kind we do not know, or matplotlib is not installed.
    """
    if path.suffix not in (".svg", ".png"):
        raise BadRequest(f"{path}: a plot ends in .svg or .png")
    if path.suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise BadRequest("PNG needs matplotlib, which is not here; .svg does not")


def draw_plot(path: Path, found: Sequence[ScenarioOutcome]) -> None:
    """Write a picture; its name says which kind."""
    if path.suffix == ".svg":
        path.write_text(svg(plot_panels(found)), encoding="utf-8")
    else:
        _draw_png(path, plot_panels(found))


def _draw_png(path: Path, some: Sequence[Panel]) -> None:
    figure: Any = importlib.import_module("matplotlib.figure")
    size = (WIDTH / _DPI, HEIGHT * len(some) / _DPI)
    sheet = figure.Figure(figsize=size, dpi=_DPI, layout="constrained")
    for axes, panel in zip(sheet.subplots(len(some)), some, strict=True):
        axes.set_title(panel.title)
        if isinstance(panel, Bars):
            names = [name for name, _ in panel.values]
            values = [value for _, value in panel.values]
            colours = [COLOURS[n % len(COLOURS)] for n in range(len(names))]
            axes.barh(names[::-1], values[::-1], color=colours[::-1])
        else:
            _draw_curves(axes, panel)
    sheet.savefig(path)


def _draw_curves(axes: Any, panel: Curves) -> None:
    for number, (name, line) in enumerate(panel.lines):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot([x for x, _ in line], [y for _, y in line], label=name, color=colour)
    if panel.is_log:
        axes.set_xscale("log")
    axes.set_xlabel(panel.x_label)
    axes.legend()

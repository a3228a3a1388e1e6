"""How much GPU of a large cluster is given out: openb pods through the product's code.

The protocol of "Beware of Fragmentation" (Weng et al., USENIX ATC'23): the trace's
pods and random clones of them, together 130 % of the cluster's GPUs, come in random
order, stay, and are dropped where they fit nowhere. The traces are not part of the
project; `TRACES` names their folder.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.meter import BenchError
from bench.result import ROOT
from corral.scheduler.place.capacity import (
    WHOLE,
    CapacityOffer,
    Card,
    Need,
    NodeCapacity,
)
from corral.scheduler.place.packing import Fit, Packing

WORKLOADS = ("default", "cpu100", "gpushare40", "gpushare60", "multigpu20")
SEEDS = (42, 43, 44)
ARRIVING = 1.3
TRACES = Path(os.environ.get("TRACES") or ROOT.parent / "shared" / "data")

Row = dict[str, str]
Published = dict[tuple[str, str], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Run:
    """Percent of GPU given out when 100 % and 130 % had come, and what it took."""

    at_100: float
    at_130: float
    dropped: int
    decisions_us: tuple[float, ...]


class Ledger:
    """What was given out, counted apart from the product, so as to believe it."""

    def __init__(self, nodes: Sequence[Row]) -> None:
        self._cpu = {row["sn"]: int(row["cpu_milli"]) for row in nodes}
        self._memory = {row["sn"]: int(row["memory_mib"]) for row in nodes}
        self._kind = {row["sn"]: row["model"] for row in nodes}
        self._cards = {row["sn"]: [WHOLE] * int(row["gpu"]) for row in nodes}
        self.total = sum(map(sum, self._cards.values()))
        self.given = 0

    def take(self, fit: Fit, need: Need) -> None:
        node, cards = fit.node.name, self._cards[fit.node.name]
        self._cpu[node] -= need.cpu_milli
        self._memory[node] -= need.memory_mb
        for card in fit.cards:
            cards[card] -= need.share
        self.given += need.share * len(fit.cards)
        least = min(self._cpu[node], self._memory[node], *cards)
        if least < 0 or len(set(fit.cards)) != need.gpus:
            raise BenchError(f"overcommitted: {need} on {node}")
        if need.kinds and self._kind[node] not in need.kinds:
            raise BenchError(f"the wrong kind of card: {need} on {node}")

    @property
    def percent(self) -> float:
        return 100.0 * self.given / self.total


def figures(
    traces: Path = TRACES,
    seeds: Sequence[int] = SEEDS,
    say: Callable[[str], object] = lambda line: None,
) -> dict[str, float]:
    """All workloads, each the mean of its seeds: percent of GPU, microseconds of CPU.

    Raises:
        BenchError: the traces are not there, or something was given out twice.
    """
    published, found = _published(traces), {}
    gaps: list[float] = []
    took_us: list[float] = []
    for workload in WORKLOADS:
        say(f"packing {workload} ...")
        runs = [run(traces, workload, seed) for seed in seeds]
        found[f"packing_{workload}_100"] = statistics.mean(r.at_100 for r in runs)
        found[f"packing_{workload}_130"] = statistics.mean(r.at_130 for r in runs)
        gaps.append(published[workload, "fgd"][1] - found[f"packing_{workload}_130"])
        took_us += [us for each in runs for us in each.decisions_us]
    cuts = statistics.quantiles(took_us, n=100)
    return found | {
        "packing_worst_gap_to_fgd": max(gaps),
        "packing_decision_mean_us": statistics.mean(took_us),
        "packing_decision_p50_us": cuts[49],
        "packing_decision_p99_us": cuts[98],
    }


def run(traces: Path, workload: str, seed: int) -> Run:
    nodes = sorted(_rows(traces / "openb_nodes.csv"), key=lambda row: row["sn"])
    pods = _rows(traces / f"openb_pods_{workload}.csv.gz")
    packing, ledger = _packing(nodes), Ledger(nodes)
    came, dropped, at_100, took_us = 0, 0, 0.0, []
    for need in arrivals([_need(pod) for pod in pods], ledger.total, seed):
        came += need.milli
        start = time.thread_time()
        packing.expect(need)
        fit = packing.choose(need)
        if fit is not None:
            packing.place(fit.node, fit.cards, need)
        took_us.append(1e6 * (time.thread_time() - start))
        if fit is None:
            dropped += 1
        else:
            ledger.take(fit, need)
        if came <= ledger.total:
            at_100 = ledger.percent
    return Run(at_100, ledger.percent, dropped, tuple(took_us))


def arrivals(needs: list[Need], total: int, seed: int) -> list[Need]:
    """The same sequence for the same seed as the reference simulator's.

    A clone is the last when one of its cards would pass the limit.
    """
    chance = np.random.default_rng(seed)
    coming, milli = list(needs), sum(need.milli for need in needs)
    while True:
        clone = needs[chance.integers(len(needs))]
        if milli + clone.share > ARRIVING * total:
            break
        milli += clone.milli
        coming.append(clone)
    order = np.arange(len(coming))
    chance.shuffle(order)
    return [coming[at] for at in order]


def _packing(nodes: Sequence[Row]) -> Packing:
    packing = Packing()
    for row in nodes:
        cards = (Card(row["model"]),) * int(row["gpu"])
        offer = CapacityOffer(int(row["cpu_milli"]), int(row["memory_mib"]), cards)
        packing.add(NodeCapacity.of(row["sn"], offer))
    return packing


def _need(pod: Row) -> Need:
    gpus = int(pod["num_gpu"])
    kinds = frozenset((pod.get("gpu_spec") or "").split("|")) - {""}
    share = int(pod["gpu_milli"]) if gpus else 0
    return Need(int(pod["cpu_milli"]), int(pod["memory_mib"]), share, gpus, kinds=kinds)


def _rows(path: Path) -> list[Row]:
    if not path.is_file():
        raise BenchError(f"no {path.name} in {path.parent}: set TRACES to its folder")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _published(traces: Path) -> Published:
    return {
        (row["workload"], row["policy"]): (
            float(row["alloc_at_100"]),
            float(row["alloc_at_130"]),
        )
        for row in _rows(traces / "published_fgd_alloc.csv")
    }


def table(found: dict[str, float], traces: Path = TRACES) -> Table:
    """Our figures, with the published ones beside them."""
    published = _published(traces)
    shown = Table(title="GPU given out, percent, after 100 % / 130 % came")
    for name in ("workload", "best fit", "FGD", "Corral", "over FGD"):
        shown.add_column(name, justify="left" if name == "workload" else "right")
    for workload in WORKLOADS:
        ours = found[f"packing_{workload}_100"], found[f"packing_{workload}_130"]
        theirs = [published[workload, policy] for policy in ("bestfit", "fgd")]
        cells = ("{:.2f} / {:.2f}".format(*pair) for pair in (*theirs, ours))
        shown.add_row(workload, *cells, f"{ours[1] - theirs[1][1]:+.2f}")
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    console = Console(highlight=False)
    try:
        found = figures(options.traces, options.seeds, console.print)
    except BenchError as error:
        console.print(f"the bench failed: {error}")
        return 1
    console.print(table(found, options.traces))
    for key in found:
        if not key.endswith(("_100", "_130")):
            console.print(f"{key} {found[key]:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

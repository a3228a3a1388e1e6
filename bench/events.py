"""`make bench-events`: what it costs the manager when hundreds listen to its events.

500 WebSockets in another process hear of tasks that are submitted, 50 a second, first
without anybody listening for comparison. Prints a table, writes `results/events.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.corral_side import CorralSide, corral_side
from bench.events_side import KEY
from bench.meter import BenchError, measure
from bench.result import write

TARGET = "events"
PACKAGES = ("corral", "uvicorn", "websockets", "fastapi", "msgspec")
SIDE = Path(__file__).with_name("events_side.py")
KIND = "bench-events"
PACE_S = 0.02
GOALS = {
    "events_lost": 0.0,
    "update_p95_ms": 1000.0,
    "manager_cpu_share": 0.5,
    "false_losses": 0.0,
}


class Listeners:
    """The process of those who listen."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        if not told:
            raise BenchError("those who listen are gone")
        found: dict[str, Any] = json.loads(told)
        return found

    def stop(self, events: int) -> dict[str, Any]:
        """Their figures, once they have heard of so many events."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{events}\n")
        self._process.stdin.flush()
        return self.answer()


@contextmanager
def listeners(
    corral: CorralSide, count: int, *, is_plain: bool = False
) -> Iterator[Listeners]:
    key = (corral.home / "admin.key").read_text(encoding="utf-8").strip()
    process = subprocess.Popen(
        [
            *(sys.executable, str(SIDE), "--url", corral.url, "--count", str(count)),
            *(["--plain"] if is_plain else []),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {KEY: key},
    )
    try:
        with process:
            made = Listeners(process)
            made.answer()
            yield made
    finally:
        process.kill()
        process.wait()


def submit(corral: CorralSide, rate: float, seconds: float) -> int:
    """Submit tasks, so many a second, those that are due together; how many."""
    count, begun = 0, time.monotonic()
    while (now := time.monotonic() - begun) < seconds:
        due = int(now * rate) + 1
        rows = [
            {"task_type": KIND, "task_id": f"e{begun:.0f}-{n}-{time.time():.6f}"}
            for n in range(count, due)
        ]
        if rows:
            corral.client.submit_batch(rows)
        count = max(count, due)
        time.sleep(PACE_S)
    return count


def run(options: argparse.Namespace, console: Console) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="corral-bench-") as name,
        corral_side(Path(name) / "corral", 1) as corral,
    ):
        corral.client.register_job_type(KIND)
        manager = psutil.Process(corral.pids()["manager"])
        console.print(f"{options.rate:g} events/s that nobody hears ...")
        quiet_s = options.seconds / 3
        alone = measure(lambda: submit(corral, options.rate, quiet_s), corral.processes)
        before = manager.memory_info().rss
        console.print(f"{options.listeners} listeners for {options.seconds:g} s ...")
        with listeners(corral, options.listeners, is_plain=options.plain) as side:
            opened = manager.memory_info().rss
            sent: list[int] = []
            usage = measure(
                lambda: sent.append(submit(corral, options.rate, options.seconds)),
                corral.processes,
            )
            told = side.stop(sent[0])
            after = manager.memory_info().rss
        lost = corral.client.events(event_type="node_lost,mass_loss", limit=1000)
    return {
        **told,
        "listeners": float(options.listeners),
        "events_per_s": sent[0] / usage.wall_s,
        "manager_cpu_share": usage.cpu_s["manager"] / usage.wall_s,
        "manager_cpu_share_alone": alone.cpu_s["manager"] / alone.wall_s,
        "manager_rss_growth_mb": (after - before) / (1 << 20),
        "manager_rss_growth_while_told_mb": (after - opened) / (1 << 20),
        "false_losses": float(len(lost.events)),
        "foreign_share": usage.foreign,
    }


def main() -> int:
    seconds = float(os.environ.get("EVENTS_SECONDS", 60))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listeners", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0, help="events a second")
    parser.add_argument("--plain", action="store_true", help="a message per event")
    parser.add_argument("--seconds", type=float, default=seconds)
    options = parser.parse_args()
    console = Console(highlight=False)
    try:
        figures = run(options, console)
    except BenchError as error:
        console.print(f"the bench failed: {error}")
        return 1
    table = Table("figure", "value", title="Events for many who listen")
    for key, value in figures.items():
        table.add_row(key, f"{value:.4g}")
    console.print(table)
    for key, goal in GOALS.items():
        verdict = "met" if figures[key] <= goal else "missed"
        console.print(f"{key}: {figures[key]:.3g}, goal at most {goal:g}: {verdict}")
    console.print(f"written to {write(TARGET, figures, PACKAGES)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

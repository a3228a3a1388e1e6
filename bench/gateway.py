"""`make bench-gateway`: requests through the gateway beside the same ones without it.

Sixteen at once to a service that takes 50 ms, in turns, so that a busy machine slows
both alike. Prints a table and writes `results/gateway.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.corral_side import CorralSide, corral_side
from bench.meter import BenchError, family, measure
from bench.result import write

TARGET = "gateway"
AT_ONCE = 16
GOAL = 1.3
PACKAGES = ("corral", "httpx", "uvicorn", "starlette", "fastapi")
SERVICE = Path(__file__).with_name("nap_service.py")

Figures = dict[str, float]


def main() -> int:
    options = _options()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        figures = _run(options)
    except BenchError as error:
        console.print(f"the bench failed: {error}")
        return 1
    console.print(_table(figures, options.rounds))
    console.print(f"written to {write(TARGET, figures, PACKAGES)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=10)
    return parser.parse_args()


def _run(options: argparse.Namespace) -> Figures:
    with (
        tempfile.TemporaryDirectory(prefix="corral-bench-") as name,
        _service() as (url, pid),
        corral_side(Path(name) / "corral", 1) as corral,
    ):
        corral.client.register_app("nap", url)
        rounds: list[list[list[float]]] = []

        def work() -> None:
            rounds.extend(asyncio.run(_rounds(corral, url, options)))

        usage = measure(work, lambda: {**corral.processes(), "service": family(pid)})
        return _figures(rounds, usage.foreign)


@contextmanager
def _service() -> Iterator[tuple[str, int]]:
    """A service that naps before each answer: its URL and process id."""
    process = subprocess.Popen(
        [sys.executable, str(SERVICE)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise BenchError("the service did not start")
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def _rounds(
    corral: CorralSide, url: str, options: argparse.Namespace
) -> list[list[list[float]]]:
    """For each round, how long each call took: directly, then through the gateway."""
    key = (corral.home / "admin.key").read_text("utf-8").strip()
    headers = {"Authorization": f"Bearer {key}"}
    limits = httpx.Limits(max_connections=AT_ONCE)
    async with httpx.AsyncClient(headers=headers, timeout=30, limits=limits) as client:

        async def call(address: str) -> float:
            begun = time.perf_counter()
            (await client.get(address)).raise_for_status()
            return time.perf_counter() - begun

        async def at_once(address: str) -> list[float]:
            return await asyncio.gather(*(call(address) for _ in range(AT_ONCE)))

        addresses = (f"{url}/", f"{corral.url}/nap/")
        for _ in range(options.warm_up):
            for address in addresses:
                await at_once(address)
        return [[await at_once(a) for a in addresses] for _ in range(options.rounds)]


def _figures(rounds: list[list[list[float]]], foreign: float) -> Figures:
    direct = [took for direct, _ in rounds for took in direct]
    through = [took for _, through in rounds for took in through]
    figures: Figures = {}
    for name, took in (("direct", direct), ("gateway", through)):
        cuts = statistics.quantiles(took, n=100, method="inclusive")
        figures |= {f"{name}_p{at}_ms": cuts[at - 1] * 1000.0 for at in (50, 95)}
    figures["ratio"] = figures["gateway_p50_ms"] / figures["direct_p50_ms"]
    figures["foreign_cpu_share"] = foreign
    return figures


def _table(figures: Figures, rounds: int) -> Table:
    table = Table(title=f"{AT_ONCE} requests at once, {rounds} rounds")
    table.add_column("figure")
    table.add_column("", justify="right")
    table.add_column("goal", justify="right")
    for key, value in figures.items():
        verdict = "met" if value <= GOAL else "missed"
        goal = f"at most {GOAL:g}, {verdict}" if key == "ratio" else ""
        table.add_row(key, f"{value:.3g}", goal)
    return table


if __name__ == "__main__":
    raise SystemExit(main())

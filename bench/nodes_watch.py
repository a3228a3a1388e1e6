"""Looks at a manager while nodes beat: its processor time, commits, and losses.

What it asks while it measures goes to PostgreSQL and not through the manager, so that
the question costs the manager nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import asyncpg
import psutil

from bench.corral_side import CorralSide
from bench.meter import BenchError, Kinds, family, measure
from bench.nodes_body import HOLD

Figures = dict[str, float]
FLEET = Path(__file__).with_name("nodes_fleet.py")
DATABASE = "CORRAL_DATABASE_URL"
LOOK_S, SETTLE_S, DEADLINE_S = 1.0, 15.0, 120.0
_BEATS = ("beat_p50_ms", "beat_p99_ms", "beat_max_ms", "beat_kb")
# Every transaction that writes has taken a number, one that reads takes none. The
# statistics count reads and PostgreSQL's own housekeeping too, and come some 10 s late.
_COMMITS = """
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as written, xact_commit
    from pg_stat_database where datname = current_database()"""
# A node that has joined and not yet registered is offline and was never online.
_DOUBTED = """
    select id from cluster_nodes
    where hostname like 'sim%' and epoch > 0 and state <> 'online'"""
_LOSSES = """
    select seq::text as id from cluster_events
    where event_type in ('node_lost', 'mass_loss')"""


class Fleet:
    """The simulator's process, told by lines and answering with figures."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def tell(
        self, *words: object, meanwhile: Callable[[], None] = lambda: None
    ) -> Figures:
        """Send a command and wait until it is done; figures since the last one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        while not select.select([self._process.stdout], [], [], LOOK_S)[0]:
            meanwhile()
        told = self._process.stdout.readline()
        if not told:
            raise BenchError("the simulated nodes are gone")
        figures: Figures = json.loads(told)
        return figures


@contextmanager
def fleet_of(url: str, workers: int, cards: int) -> Iterator[Fleet]:
    """A process that can be as many nodes as it is told to."""
    command = [sys.executable, str(FLEET), "--port", str(urlsplit(url).port)]
    process = subprocess.Popen(
        [*command, "--workers", str(workers), "--cards", str(cards)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with process:
            yield Fleet(process)
    finally:
        process.kill()
        process.wait()


class Watch:
    """One cluster, the nodes that beat at it, and a connection to its database."""

    def __init__(self, corral: CorralSide, fleet: Fleet, workers: int) -> None:
        self._corral = corral
        self._fleet = fleet
        self._workers = workers
        self._count = 0
        self._asked = 0
        self._losses: set[str] = set()
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        # The embedded database's URL is given to the manager alone.
        manager = psutil.Process(self._corral.pids()["manager"])
        url = manager.environ()[DATABASE]
        self._database = self._loop.run_until_complete(asyncpg.connect(url))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run_until_complete(self._database.close())
        self._loop.close()

    def _ask(self, query: str) -> list[Any]:
        self._asked += 1
        return list(self._loop.run_until_complete(self._database.fetch(query)))

    def _look(self) -> None:
        """Remember who is doubted or lost now; doubts pass, this is not forgotten."""
        for query in (_DOUBTED, _LOSSES):
            self._losses |= {row["id"] for row in self._ask(query)}

    def _look_on(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._look()
            time.sleep(min(LOOK_S, left))

    def grow(self, count: int) -> float:
        """Bring in nodes until there are `count`; seconds it took.

        Half of the workers get a task that they hold from then on. It waits for them
        before they come: orders to workers that wait for none travel by Redis, which
        nobody reads here.
        """
        client, new = self._corral.client, count - self._count
        client.register_job_type(HOLD)
        holding = (self._workers + 1) // 2
        client.submit_many([(HOLD, {"number": n}) for n in range(new * holding)])
        token = client.join_token(uses=new).token
        begun = time.monotonic()
        told = self._fleet.tell("grow", count, token, meanwhile=self._look)
        self._count = count
        if told["held"] != count * holding:
            raise BenchError(f"workers hold {told['held']:g} tasks: not one each")
        return time.monotonic() - begun

    def measure(self, seconds: float) -> Figures:
        """Look on for a while; what it cost, and what was lost since the last time."""
        self._look_on(SETTLE_S)
        early = self._fleet.tell("figures")
        before, asked = self._ask(_COMMITS)[0], self._asked
        usage = measure(lambda: self._look_on(seconds), self._processes)
        after, asked = self._ask(_COMMITS)[0], self._asked - asked
        written = after["written"] - before["written"]
        everything = after["xact_commit"] - before["xact_commit"] - asked
        told = self._fleet.tell("figures")
        figures = {
            "nodes": float(self._count),
            "seconds": usage.wall_s,
            "commits_per_s": written / usage.wall_s,
            "all_commits_per_s": everything / usage.wall_s,
            "false_losses": float(self.losses(early, told)),
            "foreign_cpu_share": usage.foreign,
        }
        for kind in ("manager", "postgres", "simulator"):
            figures[f"{kind}_cpu_cores"] = usage.cpu_s[kind] / usage.wall_s
        if told["beats"]:
            figures |= {key: told[key] for key in _BEATS}
            figures["cpu_ms_per_beat"] = usage.cpu_s["manager"] * 1e3 / told["beats"]
            figures["beats_per_s"] = told["beats"] / usage.wall_s
        return figures

    def _processes(self) -> Kinds:
        pids = self._corral.pids()
        return {
            "manager": [psutil.Process(pids["manager"])],
            "simulator": [psutil.Process(self._fleet.pid)],
            **{name: family(pids[name]) for name in ("postgres", "redis")},
        }

    def losses(self, *told: Figures) -> int:
        """Whatever was taken for dead since the last time, and what is not back."""
        client = self._corral.client
        nodes = [n for n in client.nodes() if n.hostname.startswith("sim")]
        workers = client.workers()
        count = len(self._losses)
        self._losses.clear()
        count += sum(int(t["refused"] + t["dropped"]) for t in told)
        known = {n.node_id for n in nodes if n.status == "online"}
        serving = [w for w in workers if w.status in ("online", "busy")]
        count += abs(self._count - len(known))
        return count + abs(self._count * self._workers - len(serving))

    def kill_manager(self) -> float:
        """End the manager without warning; seconds until all nodes beat again."""
        killed = self._corral.pids()["manager"]
        os.kill(killed, signal.SIGKILL)
        begun = time.monotonic()
        self._fleet.tell("figures")
        while self._corral.pids().get("manager", killed) == killed:
            self._pause(begun, "the manager was not started again")
        self.wait_for_beats(begun)
        return time.monotonic() - begun

    def wait_for_beats(self, begun: float) -> None:
        """Until every node was heard since the last figures were taken."""
        while self._fleet.tell("peek")["spoke"] < self._count:
            self._pause(begun, "not all nodes beat")

    def _pause(self, begun: float, complaint: str) -> None:
        if time.monotonic() - begun > DEADLINE_S:
            raise BenchError(complaint)
        self._look()
        time.sleep(0.1)

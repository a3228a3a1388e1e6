"""Many nodes in one process: they join, register, start workers and beat over HTTP.

It speaks the wire of docs/design/wire.md with real keys, two kept connections a node
as an agent has them, and takes its commands as lines on stdin: `grow N TOKEN`,
`figures`, `peek`. It judges nothing; it tells what it was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import nodes_body
from bench.nodes_body import SimWorker
from bench.nodes_line import AGAIN_S, Away, Line, Refused, patiently
from corral.core.backoff import Backoff
from corral.process.keep_alive import Tries

SAMPLE_S, POLL_S = 30.0, 25.0
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Tally:
    """What happened to the beats since the last time somebody asked."""

    latencies_s: list[float] = field(default_factory=list)
    away: int = 0
    refused: int = 0
    dropped: int = 0
    body_bytes: int = 0
    spoke: set[str] = field(default_factory=set)


class SimNode:
    """One node: what an agent and its supervisors would say, without either."""

    def __init__(self, name: str, fleet: Fleet) -> None:
        self.name = name
        self._fleet = fleet
        self._seq = 0
        self._sampled_at = 0.0
        self._workers: list[SimWorker] = []
        self._news = asyncio.Event()

    async def _join(self, token: str) -> None:
        line = Line(self._fleet.place, token)
        body = _encode({"hostname": self.name})
        joined = await patiently(line, "POST", "/nodes/join", body)
        line.close()
        self._id, self._key = joined["node_id"], joined["key"]

    async def start(self, token: str) -> None:
        """Join, register, beat, and have every worker register and be ready."""
        await self._join(token)
        place, key = self._fleet.place, self._key
        self._beats, self._polls = Line(place, key), Line(place, key)
        body = nodes_body.registration(self.name, self._fleet.workers)
        told = await patiently(self._beats, "POST", f"/nodes/{self._id}/register", body)
        self._epoch, self._version = told["epoch"], told["desired"]["version"]
        self._workers = nodes_body.workers_of(told["desired"])
        self._beat_s = told["beat_s"]
        self._fleet.spawn(self._beat_on())
        self._fleet.spawn(self._poll_on())
        line = Line(place, key)
        for worker in self._workers:
            await self._start_worker(line, worker)
        line.close()
        self._news.set()

    async def _start_worker(self, line: Line, worker: SimWorker) -> None:
        base = f"/workers/{worker.id}"
        body = _encode({"pid": worker.pid, "epoch": self._epoch})
        told = await patiently(line, "POST", f"{base}/register", body)
        worker.incarnation, worker.state = told["incarnation"], "ready"
        report = {"incarnation": worker.incarnation, "report_id": "1", "state": "ready"}
        body = _encode({**report, "wants_order": worker.is_holding})
        told = await patiently(line, "POST", f"{base}/reports", body)
        if (order := told["order"]) is None:
            return
        items = json.loads(order["body"])["items"]
        worker.held = [[item["task_id"], item["attempt"]] for item in items]
        worker.state = "busy"
        started = [[*pair, time.time()] for pair in worker.held]
        note = {**report, "report_id": "2", "state": "busy", "started": started}
        await patiently(line, "POST", f"{base}/reports", _encode(note))

    @property
    def held(self) -> int:
        return sum(len(worker.held) for worker in self._workers)

    async def _beat_on(self) -> None:
        tries, delay = Tries(Backoff(AGAIN_S, self._beat_s)), 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), delay)
            self._news.clear()
            try:
                await self._beat()
                tries.reset()
                delay = self._beat_s
            except Away:
                self._fleet.tally.away += 1
                delay = tries.next_s()
            except Refused as error:
                self._fleet.tally.refused += 1
                print(error, file=sys.stderr)
                return

    async def _beat(self) -> None:
        now = time.monotonic()
        is_due = now - self._sampled_at >= SAMPLE_S
        sample = nodes_body.sample() if is_due else None
        self._seq += 1
        pids = [worker.pid for worker in self._workers]
        cards = nodes_body.cards(self._id, self._fleet.cards, pids)
        body = nodes_body.beat(self._epoch, self._seq, self._workers, sample, cards)
        begun = time.perf_counter()
        told = await self._beats.call("POST", f"/nodes/{self._id}/beat", body)
        self._fleet.tally.latencies_s.append(time.perf_counter() - begun)
        self._fleet.tally.body_bytes = len(body)
        self._fleet.tally.spoke.add(self.name)
        self._fleet.tally.dropped += len(told["drop"])
        if is_due:
            # The first one counts as older than it is: started together, nodes would
            # sample together for ever, and the manager would write them all at once.
            age_s = 0.0 if self._sampled_at else random.uniform(0.0, SAMPLE_S)
            self._sampled_at = now - age_s
        if told["desired_version"] != self._version:
            await self._fetch(self._beats, 0.0)

    async def _poll_on(self) -> None:
        while True:
            try:
                await self._fetch(self._polls, POLL_S)
            except Away:
                await asyncio.sleep(AGAIN_S)

    async def _fetch(self, line: Line, wait_s: float) -> None:
        path = f"/nodes/{self._id}/desired?since={self._version}&wait={wait_s:g}"
        self._version = (await line.call("GET", path, wait_s=wait_s))["version"]


class Fleet:
    """All nodes of this process."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.place = (options.host, options.port)
        self.workers, self.cards = options.workers, options.cards
        self.tally = Tally()
        self.nodes: list[SimNode] = []
        self._tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def grow(self, count: int, token: str) -> None:
        """Bring in nodes until there are `count`, all new ones at once."""
        new = [SimNode(f"sim{n:04}", self) for n in range(len(self.nodes), count)]
        self.nodes += new
        await asyncio.gather(*(node.start(token) for node in new))

    def figures(self) -> dict[str, float]:
        """What happened since the tally was begun."""
        tally = self.tally
        took = sorted(tally.latencies_s) or [0.0]
        return {
            "nodes": len(self.nodes),
            "spoke": len(tally.spoke),
            "beats": len(tally.latencies_s),
            "beat_p50_ms": took[len(took) // 2] * 1000.0,
            "beat_p99_ms": took[len(took) * 99 // 100] * 1000.0,
            "beat_max_ms": took[-1] * 1000.0,
            "beat_kb": tally.body_bytes / 1024.0,
            "away": tally.away,
            "refused": tally.refused,
            "dropped": tally.dropped,
            "held": sum(node.held for node in self.nodes),
            "cpu_s": time.process_time(),
        }


async def serve(options: argparse.Namespace) -> None:
    """Carry out the commands on stdin until it ends; each is answered by figures."""
    fleet = Fleet(options)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        words = line.decode().split()
        if words[0] == "grow":
            await fleet.grow(int(words[1]), words[2])
        print(json.dumps(fleet.figures()), flush=True)
        if words[0] != "peek":
            fleet.tally = Tally()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--cards", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    uvloop.run(serve(_options()))

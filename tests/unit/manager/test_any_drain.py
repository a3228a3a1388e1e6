"""Nodes held and opened again at any moment: no task is lost, restarted or stuck."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from tests.property_examples import examples
from tests.unit.api.world import (
    FakeNode,
    FakeWorker,
    Json,
    World,
    declared,
    quiet,
    running,
)

WORKERS = [declared("one", "echo", concurrency=2), declared("two", "echo")]
LABELS: tuple[dict[str, str], ...] = ({}, {}, {}, {"rack": "0"}, {"rack": "1"})


class Machines:
    """Two nodes with agents and workers that do as they are told, and an operator."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.nodes: list[FakeNode] = []
        # By incarnation: a worker that moves is on two machines for a while.
        self.held: dict[str, dict[str, Json]] = {}
        self.runs: dict[str, int] = {}
        self.accepted: list[str] = []
        self.count = 0

    async def begin(self) -> None:
        for number in range(2):
            node = await self.world.node(*WORKERS)
            self.nodes.append(node)
            labels = {"labels": {"rack": str(number)}}
            await self.world.operate.send("PATCH", f"/nodes/{node.id}", json=labels)
        free = {"worker_class": "corral.worker.builtin:EchoWorker", "count": 2}
        await self.world.operate.tell("/workers", free)
        for node in self.nodes:
            await self.obey(node)

    async def obey(self, node: FakeNode) -> None:
        """The agent starts what is desired and stops what is not."""
        told = await node.caller.ask(f"/nodes/{node.id}/desired")
        rows = {row["worker_id"]: row["generation"] for row in told["workers"]}
        for name, worker in list(node.workers.items()):
            if self.runs.get(worker.incarnation) != rows.get(worker.id):
                self.stop(node, name, worker)
        for worker_id, generation in rows.items():
            if all(w.id != worker_id for w in node.workers.values()):
                await self.start(node, worker_id, generation)

    async def start(self, node: FakeNode, worker_id: str, generation: int) -> None:
        worker = FakeWorker(node, worker_id)
        self.count += 1
        body = {"pid": 5000 + self.count, "epoch": node.epoch}
        path = f"/workers/{worker_id}/register"
        answer = await node.caller.post(path, body)
        if not answer.is_success:
            return  # It has moved on.
        told = answer.json()
        worker.pid, worker.queue = body["pid"], told["queue"]
        worker.incarnation, worker.secret = told["incarnation"], told["secret"]
        node.workers[worker_id] = worker
        self.held[worker.incarnation] = {}
        self.runs[worker.incarnation] = generation
        await worker.report(state="ready")

    def stop(self, node: FakeNode, name: str, worker: FakeWorker) -> None:
        del node.workers[name]
        if worker.incarnation not in self.runs:
            return  # Only declared: no process was started yet.
        del self.runs[worker.incarnation]
        assert not self.held.pop(worker.incarnation), "it was stopped with work in hand"
        assert not self.world.engine.sent.get(worker.queue), "its order lies there"

    # what happens ------------------------------------------------------------
    async def submit(self) -> None:
        rows = [
            {"task_type": "echo", "node_labels": self.dice.choice(LABELS)}
            for _ in range(self.dice.randint(1, 4))
        ]
        told = await self.world.submit.tell("/tasks/batch", {"tasks": rows})
        self.accepted += told["task_ids"]

    async def work(self) -> None:
        for node in self.nodes:
            for worker in list(node.workers.values()):
                if worker.incarnation in self.runs:
                    self.take(worker, worker.orders())

    def take(self, worker: FakeWorker, orders: list[Json]) -> None:
        for order in orders:
            for item in order["items"]:
                self.held[worker.incarnation][item["task_id"]] = item

    async def report(self) -> None:
        busy = [
            w
            for n in self.nodes
            for w in n.workers.values()
            if self.held.get(w.incarnation)
        ]
        if not busy:
            return
        worker = self.dice.choice(busy)
        task_id = self.dice.choice(list(self.held[worker.incarnation]))
        item = self.held[worker.incarnation].pop(task_id)
        if self.dice.random() < 0.3:
            await worker.begin(item)
        told = await worker.finish(item, wants_order=self.dice.random() < 0.5)
        if told["order"] is not None:
            self.take(worker, [worker.read(told["order"])])

    async def pass_time(self) -> None:
        self.world.clock.step(self.dice.choice([0.1, 1, 3]))
        await quiet(50)
        await self.work()
        for node in self.nodes:
            words = [
                w.word(*self.held[w.incarnation].values())
                for w in node.workers.values()
                if w.incarnation in self.runs
            ]
            await node.beat(*words)
        await self.world.manager.nodes.holds.step()

    async def operate(self) -> None:
        node = self.dice.choice(self.nodes)
        verb = self.dice.choice(["cordon", "drain", "drain", "uncordon"])
        await self.world.operate.tell(f"/nodes/{node.id}/{verb}")

    async def follow(self) -> None:
        await self.obey(self.dice.choice(self.nodes))

    async def run(self, steps: int) -> None:
        often: list[Callable[[], Awaitable[None]]] = [
            *[self.submit] * 3,
            *[self.work] * 6,
            *[self.report] * 10,
            *[self.pass_time] * 4,
            *[self.follow] * 6,
            *[self.operate] * 2,
        ]
        self.world.store.dice = self.dice
        for _ in range(steps):
            first, second = self.dice.choices(often, k=2)
            # One agent is one process: it does one thing after the other.
            await first()
            if second is not first and self.submit in (first, second):
                await asyncio.gather(second(), self.submit())
        self.world.store.dice = None

    async def end(self) -> None:
        for node in self.nodes:
            await self.world.operate.tell(f"/nodes/{node.id}/uncordon")
        for _ in range(40 * len(self.accepted)):
            if not self.world.manager.ctx.cluster.tasks:
                return
            await self.pass_time()
            for node in self.nodes:
                await self.obey(node)
            await self.work()
            await self.report()
            await quiet(20)


@pytest.mark.parametrize("seed", range(examples(5, least=2)))
async def test_whatever_is_held_every_task_completes_in_its_first_attempt(
    seed: int,
) -> None:
    async with running() as world:
        machines = Machines(world, seed)
        await machines.begin()
        await machines.run(80)
        await machines.end()
        stored = await world.store.inner.tasks.get_tasks(machines.accepted)
        assert len(stored) == len(set(machines.accepted)) > 20
        ended = {(str(t.state), t.attempt, t.losses) for t in stored}
        assert ended == {("completed", 1, 0)}

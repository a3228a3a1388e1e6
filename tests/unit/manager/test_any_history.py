"""Whatever happens, in whatever order: no accepted task is lost or ends twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from corral.core.tasks.task import TERMINAL, State
from corral.errors import StoreUnavailable
from tests.property_examples import examples
from tests.twins.store import MemoryStore
from tests.unit.api.world import (
    Caller,
    FakeNode,
    FakeWorker,
    Json,
    StepClock,
    World,
    declared,
    outcome,
    quiet,
    running,
    said,
)

WORKERS = [declared("one", "echo", concurrency=2), declared("two", "echo")]
WRITES = ["insert_tasks", "place_tasks", "settle_tasks", "start_tasks"]


class History:
    """Two nodes with two workers each, and everything that can happen to them."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.nodes: list[FakeNode] = []
        self.held: dict[str, dict[str, Json]] = {}
        self.alive: set[str] = set()
        self.accepted: list[str] = []
        self.last_reports: list[tuple[FakeWorker, str, dict[str, Any]]] = []
        self.count = 0

    @property
    def workers(self) -> list[FakeWorker]:
        return [w for node in self.nodes for w in node.workers.values()]

    async def begin(self) -> None:
        for _ in range(2):
            self.nodes.append(await self.world.node(*WORKERS))
        for worker in self.workers:
            self.held[worker.id] = {}
            await self.revive(worker)

    async def revive(self, worker: FakeWorker) -> None:
        """Its process starts, as often as it takes."""
        self.count += 1
        self.held[worker.id] = {}
        body = {"pid": 5000 + self.count, "epoch": worker.node.epoch}
        path = f"/workers/{worker.id}/register"
        answer = await worker.node.caller.post(path, body)
        self.check(answer.status_code)
        if answer.is_success:
            told = answer.json()
            worker.pid = body["pid"]
            worker.incarnation, worker.secret = told["incarnation"], told["secret"]
            worker.queue = told["queue"]
            self.alive.add(worker.id)
            self.check((await worker.report(state="ready")).status_code)

    @staticmethod
    def check(status: int) -> None:
        assert status < 500 or status == 503, "a mistake of ours"

    # what happens ------------------------------------------------------------
    async def submit(self) -> None:
        rows = []
        for _ in range(self.dice.randint(1, 4)):
            row: Json = {"task_type": "echo", "retries": self.dice.randint(0, 2)}
            row["priority"] = self.dice.randint(-1, 1)
            if self.accepted and self.dice.random() < 0.3:
                row["depends_on"] = [self.dice.choice(self.accepted)]
            if self.dice.random() < 0.2:
                row["run_after"] = self.dice.randint(1, 9)
            if self.dice.random() < 0.1:
                row["deadline"] = self.dice.randint(1, 30)
            if self.dice.random() < 0.2:
                self.count += 1
                row["task_id"] = f"own-{self.count}"
            rows.append(row)
        answer = await self.world.submit.post("/tasks/batch", {"tasks": rows})
        self.check(answer.status_code)
        if answer.is_success:
            self.accepted += [t for t in answer.json()["task_ids"] if t]

    async def take(self) -> None:
        """Workers read their queues; orders of another incarnation are dropped."""
        for worker in self.workers:
            if worker.id in self.alive and not self.world.engine.is_down:
                self.hold(worker, self.world.engine.sent.pop(worker.queue, []))

    def hold(self, worker: FakeWorker, orders: list[Any]) -> None:
        for signed in orders:
            if f'"incarnation":"{worker.incarnation}"' in signed["body"]:
                for item in worker.read(signed)["items"]:
                    self.held[worker.id].setdefault(item["task_id"], item)

    async def report(self) -> None:
        worker = self.dice.choice(self.workers)
        items = list(self.held[worker.id].values())
        if worker.id not in self.alive or not items:
            return
        item = self.dice.choice(items)
        if self.dice.random() < 0.3:
            await worker.begin(item)
            return
        kinds = ["completed"] * 5 + ["failed", "timed_out", "returned", "lost"]
        ended = outcome(item, item["task_id"], kind=self.dice.choice(kinds))
        self.count += 1
        body: dict[str, Any] = {"outcomes": [ended]}
        body["wants_order"] = self.dice.random() < 0.5
        await self.deliver(worker, f"r-{self.count}", body)
        self.last_reports.append((worker, f"r-{self.count}", body))

    async def deliver(self, worker: FakeWorker, name: str, body: Json) -> None:
        answer = await worker.report(name, **body)
        self.check(answer.status_code)
        if answer.status_code == 409:
            self.alive.discard(worker.id)
            self.held[worker.id] = {}
        elif answer.is_success:
            self.held[worker.id].pop(body["outcomes"][0]["task_id"], None)
            if (order := answer.json()["order"]) is not None:
                self.hold(worker, [order])
            for task_id, attempt in answer.json()["drop"]:
                self.drop(worker, task_id, attempt)

    def drop(self, worker: FakeWorker, task_id: str, attempt: int) -> None:
        if self.held[worker.id].get(task_id, {}).get("attempt") == attempt:
            del self.held[worker.id][task_id]

    async def repeat(self) -> None:
        """An old report comes again."""
        if self.last_reports:
            worker, name, body = self.dice.choice(self.last_reports)
            if worker.id in self.alive:
                self.check((await worker.report(name, **body)).status_code)

    async def kill(self) -> None:
        worker = self.dice.choice(self.workers)
        self.alive.discard(worker.id)
        self.held[worker.id] = {}

    async def revive_some(self) -> None:
        for worker in self.workers:
            if worker.id not in self.alive and self.dice.random() < 0.5:
                await self.revive(worker)

    async def wipe_redis(self) -> None:
        self.world.engine.sent.clear()

    async def toggle_redis(self) -> None:
        self.world.engine.is_down = not self.world.engine.is_down

    async def toggle_store(self) -> None:
        self.world.store.is_down = not self.world.store.is_down

    async def lose_an_answer(self) -> None:
        self.world.store.loses_answer(self.dice.choice(WRITES))

    async def cancel(self) -> None:
        if self.accepted:
            path = f"/tasks/{self.dice.choice(self.accepted)}"
            self.check((await self.world.submit.delete(path)).status_code)

    async def requeue(self) -> None:
        if self.accepted:
            path = f"/tasks/{self.dice.choice(self.accepted)}/requeue"
            self.check((await self.world.submit.post(path)).status_code)

    async def restart_agent(self) -> None:
        """A new epoch: all its workers are gone, and start again sooner or later."""
        node = self.dice.choice(self.nodes)
        for worker in node.workers.values():
            self.alive.discard(worker.id)
            self.held[worker.id] = {}
        body = {"hostname": "host", "workers": [*WORKERS]}
        path = f"/nodes/{node.id}/register"
        answer = await node.caller.post(path, body)
        self.check(answer.status_code)
        if answer.is_success:
            node.epoch = answer.json()["epoch"]

    async def drain(self) -> None:
        word = self.dice.choice(["true", "false"])
        path = f"/cluster/drain?resume={word}"
        self.check((await self.world.admin.post(path)).status_code)

    async def pass_time(self) -> None:
        self.world.clock.step(self.dice.choice([0.5, 2, 5]))
        for node in self.nodes:
            if self.dice.random() < 0.9:
                await self.beat(node)
        await self.rescue()

    async def beat(self, node: FakeNode) -> None:
        words = []
        for worker in node.workers.values():
            if worker.id in self.alive:
                words.append(worker.word(*self.held[worker.id].values()))
            else:
                words.append(worker.word(state="lost", pid=None))
        answer = await node.try_beat(*words)
        self.check(answer.status_code)
        if answer.is_success:
            for task_id, attempt in answer.json()["drop"]:
                for worker in node.workers.values():
                    self.drop(worker, task_id, attempt)

    async def rescue(self) -> None:
        """As the loops do: an outage is logged, and tried again."""
        manager = self.world.manager
        for step in (manager.upkeep.rescue.step, manager.nodes.watch.step):
            with contextlib.suppress(StoreUnavailable):
                await step()
        self.world.manager.tasks.dispatch.kick()
        await quiet(50)

    async def run(self, steps: int) -> None:
        often: list[Callable[[], Awaitable[None]]] = [
            *[self.submit] * 4,
            *[self.take] * 8,
            *[self.report] * 10,
            *[self.pass_time] * 6,
            *[self.revive_some] * 3,
            self.repeat,
            self.kill,
            self.wipe_redis,
            self.toggle_redis,
            self.toggle_store,
            self.lose_an_answer,
            self.cancel,
            self.requeue,
            self.restart_agent,
            self.drain,
        ]
        self.world.store.dice = self.dice
        for _ in range(steps):
            several = self.dice.choices(often, k=self.dice.randint(1, 3))
            await asyncio.gather(*(act() for act in several))

    async def heal(self) -> None:
        """All is well again: everything must come to its end."""
        self.world.store.is_down = self.world.engine.is_down = False
        self.world.store.forgive()
        self.world.manager.tasks.drain(False)
        for node in self.nodes:
            epoch = self.world.manager.nodes.get(node.id).node.epoch
            if node.epoch != epoch:
                await node.register(*WORKERS)
                self.alive -= {worker.id for worker in node.workers.values()}
        for worker in self.workers:
            if worker.id not in self.alive:
                await self.revive(worker)
        for _ in range(60):
            self.world.clock.step(5)
            for node in self.nodes:
                await self.beat(node)
            await self.rescue()
            await self.take()
            await self.finish_all()
            if not self.world.manager.ctx.cluster.tasks:
                return

    async def finish_all(self) -> None:
        for worker in self.workers:
            for item in list(self.held[worker.id].values()):
                self.count += 1
                body = {"outcomes": [outcome(item, item["task_id"])]}
                await self.deliver(worker, f"r-{self.count}", body)
            if worker.id not in self.alive:
                await self.revive(worker)

    def move(self, world: World) -> None:
        """The manager is another one; nodes and workers live on and find it."""
        self.world = world
        for node in self.nodes:
            key = node.caller.headers["Authorization"].removeprefix("Bearer ")
            node.world, node.caller = world, Caller(world.http, key)

    async def check_all_ended_once(self) -> None:
        manager, store = self.world.manager, self.world.store.inner
        assert manager.ctx.cluster.tasks == {}
        for task_id in self.accepted:
            task = await store.tasks.get_task(task_id)
            assert task is not None
            assert task.state in TERMINAL
            if task.state is State.COMPLETED:
                assert task.result == f'"{task_id}"'
        assert await store.tasks.live_tasks() == []
        assert manager.tasks.dispatch.in_hand == set()
        assert manager.ctx.cluster.scheduler.waiting_count() == 0
        for worker in self.workers:
            link = manager.workers.get(worker.id)
            assert link.orders == {}, "every slot is free again"
        said(await self.world.submit.post("/tasks", {"task_type": "echo"}))


@pytest.mark.spec("C54")
@pytest.mark.parametrize("seed", range(examples(20)))
async def test_every_accepted_task_ends_once_whatever_happens(
    world: World, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(world, seed)
    await history.begin()
    await history.run(120)
    await history.heal()
    await history.check_all_ended_once()
    assert "it goes on" not in caplog.text


@pytest.mark.spec("C54")
@pytest.mark.parametrize("seed", range(examples(6, least=2)))
async def test_every_accepted_task_ends_once_through_restarts_of_the_manager(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    inner, clock = MemoryStore(), StepClock()
    async with running(inner=inner, clock=clock) as world:
        history = History(world, seed)
        await history.begin()
        await history.run(50)
    for _ in range(3):
        async with running(inner=inner, clock=clock) as world:
            history.move(world)
            await history.run(40)
    async with running(inner=inner, clock=clock) as world:
        history.move(world)
        await history.heal()
        await history.check_all_ended_once()
    assert "it goes on" not in caplog.text

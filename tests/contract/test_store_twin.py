"""The same random calls to both stores: same answers, same state in the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from corral.core.tasks.outcome import Outcome, OutcomeKind, RetryPolicy, settle
from corral.core.tasks.task import State, Task, TaskError
from corral.store.base import LogChunk, Placement, Retention, Store, TaskFilter
from corral.store.postgres.store import PostgresStore
from tests.contract.conftest import NOW, assigned, empty, later, make_task
from tests.property_examples import examples
from tests.twins.store import MemoryStore

STEPS = 60
Call = Callable[[Store], Awaitable[Any]]


@pytest.fixture
async def twins(database_url: str) -> AsyncIterator[tuple[Store, Store]]:
    postgres = PostgresStore(database_url)
    await postgres.open()
    await empty(database_url)
    yield MemoryStore(), postgres
    await postgres.close()


class Walk:
    """Draws calls that make sense about half of the time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._made = 0
        self._clock = 0.0

    def call(self, model: dict[str, Task]) -> Call:
        self._clock += self._random.uniform(0, 30)
        draw = self._random.choices(
            (
                self.insert,
                self.place,
                self.start,
                self.settle,
                self.requeue,
                self.prune,
            ),
            (4, 4, 2, 5, 1, 0.3),
        )[0]
        return draw(model)

    def _some(self, model: dict[str, Task]) -> list[Task]:
        known = list(model.values())
        chosen = self._random.sample(known, min(len(known), self._random.randint(1, 9)))
        return [
            replace(t, attempt=t.attempt - (self._random.random() < 0.1))
            for t in chosen
        ]

    def insert(self, _model: dict[str, Task]) -> Call:
        tasks = []
        again = {self._random.randint(0, self._made) for _ in range(2)}
        first, self._made = self._made + 1, self._made + self._random.randint(1, 12)
        for number in (*again, *range(first, self._made + 1)):
            task = make_task(
                f"t{number}",
                payload=self._random.choice(['"a"', '"\\u0000"', '"\x00"', "1"]),
                idempotency_key=self._random.choice([None, None, "k1", "k2"]),
                owner=self._random.choice(["", "me"]),
                retries=self._random.randint(0, 2),
                labels=self._random.choice([{}, {"a": "b"}]),
                depends_on=self._random.choice([(), (), (f"t{number - 3}",)]),
            )
            placed = self._random.random() < 0.5
            task = replace(task, created_at=later(self._clock))
            tasks.append(assigned(task) if placed else task)

        async def run(store: Store) -> Any:
            inserted = await store.tasks.insert_tasks(1, tasks)
            return inserted.created.keys(), inserted.existing, inserted.rejected.keys()

        return run

    def place(self, model: dict[str, Task]) -> Call:
        worker = f"w{self._random.randint(1, 3)}"
        rows = [Placement(t.id, t.attempt, worker, "i", "n") for t in self._some(model)]
        at = later(self._clock)
        return lambda store: store.tasks.place_tasks(1, rows, at)

    def start(self, model: dict[str, Task]) -> Call:
        rows = [(t.id, t.attempt, later(self._clock)) for t in self._some(model)]
        return lambda store: store.tasks.start_tasks(1, rows)

    def settle(self, model: dict[str, Task]) -> Call:
        rows = [
            settle(task, self._outcome(task), later(self._clock), RetryPolicy(), 0.5)
            for task in self._some(model)
            if task.state in (State.ASSIGNED, State.RUNNING)
        ]
        return lambda store: store.tasks.settle_tasks(1, rows)

    def _outcome(self, task: Task) -> Outcome:
        kind = self._random.choice(list(OutcomeKind))
        done = kind is OutcomeKind.COMPLETED
        result = self._random.choice(['"r"', '"\ud800"']) if done else None
        error = None if done else TaskError(str(kind), "why\x00", "trace")
        started = self._random.choice([None, later(self._clock)])
        return Outcome(task.id, task.attempt, kind, result, error, started)

    def requeue(self, model: dict[str, Task]) -> Call:
        name = self._random.choice([*model, "nobody"])
        at = later(self._clock)
        return lambda store: store.tasks.requeue_task(1, name, at)

    def prune(self, _model: dict[str, Task]) -> Call:
        keep = Retention(*[self._random.uniform(0, 600)] * 4)
        at = later(self._clock)

        async def run(store: Store) -> Any:
            gone = await store.prune(at, keep)
            return {table: gone.get(table, 0) for table in ("tasks", "attempts")}

        return run


def bare(answer: Any) -> Any:
    """Without what each store has in its own way.

    Numbers may skip, only their order is promised; and each complains in its own words
    of what it cannot keep.
    """
    if isinstance(answer, tuple):
        return tuple(map(bare, answer))
    if isinstance(answer, dict):
        return {key: bare(value) for key, value in answer.items()}
    if not isinstance(answer, Task):
        return answer
    unstorable = answer.error is not None and answer.error.kind == "unstorable_result"
    return replace(answer, seq=0, error=None if unstorable else answer.error)


async def everything(store: Store) -> Any:
    page = await store.tasks.list_tasks(TaskFilter(), limit=1000)
    events = await store.events.events(limit=1000)
    return (
        bare(page.tasks),
        # A batch that was halved has left several events.
        Counter((e.event_type, id_) for e in events for id_ in e.task_ids),
        bare(tuple(await store.tasks.live_tasks())),
        dict(await store.tasks.count_tasks()),
        [
            [(a.attempt, a.run, a.outcome, a.worker_id, a.started_at) for a in kept]
            for kept in [await store.tasks.attempts(task.id) for task in page.tasks]
        ],
    )


@pytest.mark.parametrize("seed", range(examples(8, least=3)))
async def test_both_stores_walk_the_same_way(
    twins: tuple[Store, Store], seed: int
) -> None:
    walk = Walk(seed)
    memory, postgres = twins
    for store in twins:
        await store.take_lead("m", NOW)
        await store.output.add_logs([LogChunk("t1", 1, 1, "[]")])
    for step in range(STEPS):
        page = await memory.tasks.list_tasks(TaskFilter(), limit=1000)
        call = walk.call({task.id: task for task in page.tasks})
        mine, theirs = await call(memory), await call(postgres)
        assert bare(mine) == bare(theirs), step
    assert await everything(memory) == await everything(postgres)

"""Clearing: every ended task and what was registered to run them goes at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corral.core.access.key import Key, Scope
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.app import App
from corral.core.tasks.job_type import JobType
from corral.core.tasks.outcome import OutcomeKind
from corral.core.tasks.task import State, TaskError
from corral.errors import NotLeader
from corral.store.base import Event, LogChunk, Store, TaskFilter
from tests.contract.conftest import NOW, Insert, make_task, settlement
from tests.contract.test_store_registry import NODE, WORKER

ECHO = JobType("echo", created_at=NOW)


async def test_ended_tasks_go_with_their_attempts_logs_and_idempotency_keys(
    store: Store, term: int, insert: Insert
) -> None:
    task = make_task("t1", idempotency_key="once")
    await insert(task, make_task("t2"))
    failed = settlement(
        "t1",
        state=State.FAILED,
        outcome=OutcomeKind.FAILED,
        error=TaskError("ValueError", "no"),
        dead_letter="failed",
    )
    await store.tasks.settle_tasks(term, [failed, settlement("t2")])
    await store.output.add_logs([LogChunk("t1", 1, 1, '[[1.0, "stdout", "hi"]]')])
    gone = await store.clear(term, [])
    assert (gone["tasks"], gone["attempts"], gone["log_chunks"]) == (2, 1, 1)
    assert (await store.tasks.list_tasks(TaskFilter(), 10)).total == 0
    assert await store.tasks.attempts("t1") == []
    assert await store.output.logs("t1") == []
    again = await store.tasks.insert_tasks(term, [replace(task, spec=task.spec)])
    assert list(again.created) == ["t1"]


async def test_a_live_task_stays_with_those_it_depends_on(
    store: Store, term: int, insert: Insert
) -> None:
    await insert(make_task("need"), make_task("other"))
    await store.tasks.settle_tasks(term, [settlement("need"), settlement("other")])
    await insert(make_task("live", depends_on=("need",)))
    await store.clear(term, [])
    page = await store.tasks.list_tasks(TaskFilter(), 10)
    assert {task.id for task in page.tasks} == {"need", "live"}


async def test_worker_types_go_and_job_types_are_those_to_keep(
    store: Store, term: int
) -> None:
    await store.registry.save_worker_type(
        WorkerType("a", "corral:EchoWorker", created_at=NOW)
    )
    await store.registry.save_job_type(JobType("call", "echo/run", created_at=NOW))
    await store.registry.save_job_type(replace(ECHO, input_schema="{}"))
    gone = await store.clear(term, [ECHO])
    assert gone == {"worker_types": 1, "job_types": 1}
    assert await store.registry.worker_types() == []
    assert await store.registry.job_types() == [ECHO]


async def test_nodes_workers_apps_keys_and_history_stay(
    store: Store, term: int
) -> None:
    app = App("echo", "http://127.0.0.1:9000", created_at=NOW, timeouts={"/a": 2.5})
    key = Key("k1", "d" * 64, Scope.ADMIN, "me", None, NOW)
    await store.registry.save_app(app)
    await store.access.save_key(key)
    await store.registry.save_node(NODE)
    await store.registry.save_workers([WORKER])
    await store.events.add_events([Event("before", "before", at=NOW)])
    assert await store.clear(term, []) == {}
    assert await store.registry.apps() == [app]
    assert await store.access.keys() == [key]
    assert await store.registry.nodes() == [NODE]
    assert await store.registry.workers() == [WORKER]
    assert [event.title for event in await store.events.events()] == ["before"]


async def test_a_deposed_leader_clears_nothing(
    store: Store, term: int, insert: Insert
) -> None:
    await store.registry.save_job_type(ECHO)
    await insert(make_task("t1"))
    await store.tasks.settle_tasks(term, [settlement("t1")])
    await store.take_lead("another", NOW)
    with pytest.raises(NotLeader):
        await store.clear(term, [])
    assert await store.tasks.get_task("t1") is not None
    assert await store.registry.job_types() == [ECHO]

"""Job types, nodes, workers, samples and keys: saved whole, read whole."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest

from corral.core.access.key import JoinGrant, Key, Scope
from corral.core.nodes.node import (
    Hold,
    HoldSource,
    NodeRecord,
    NodeState,
    Sample,
    Window,
)
from corral.core.nodes.worker import WorkerRecord, WorkerSpec, WorkerState
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.app import App
from corral.core.tasks.environment import ContainerEnvironment, GitEnvironment
from corral.core.tasks.job_type import JobType, QueueOrder
from corral.store.base import Store
from tests.contract.conftest import NOW, later

NODE = NodeRecord(
    id="n1",
    hostname="box",
    node_type="worker",
    state=NodeState.ONLINE,
    address="10.0.0.7:8002",
    version="0.1.0",
    epoch=2**40,
    labels={"zone": "a\x00"},
    capabilities={"gpus": [{"name": "H200", "memory_mb": 143771}], "nested": {"a": 1}},
    joined_at=NOW,
    last_heartbeat=later(5),
)
WORKER = WorkerRecord(
    id="w1",
    node_id="n1",
    spec=WorkerSpec("echo", "corral:EchoWorker", ("echo", "b"), {"x": [1, None]}, 4),
    wanted=True,
    state=WorkerState.READY,
    incarnation="i1",
    pid=4_000_000_000,
    error=None,
    restarts=3,
    generation=2,
    started_at=NOW,
    last_heartbeat=NOW,
)


def sample(node_id: str, at: datetime, cpu_percent: float = 12.5) -> Sample:
    return Sample(
        node_id=node_id,
        at=at,
        cpu_count=8,
        cpu_percent=cpu_percent,
        memory_total_mb=1024.5,
        memory_used_mb=512.25,
        disk_total_gb=100.0,
        disk_used_gb=1.0,
        network_rx_bytes=2**50,
        network_tx_bytes=7,
        load_1m=0.1,
        load_5m=0.2,
        load_15m=0.3,
    )


async def test_a_saved_job_type_replaces_the_former(store: Store) -> None:
    first = JobType("echo", created_at=NOW)
    await store.registry.save_job_type(first)
    await store.registry.save_job_type(
        JobType("b", "workers", '{"type":"object"}', "{}", NOW)
    )
    better = replace(first, input_schema='{"a": 1}')
    await store.registry.save_job_type(better)
    found = await store.registry.job_types()
    assert [job_type.name for job_type in found] == ["b", "echo"]
    assert found[1] == better


async def test_a_job_type_keeps_its_target_order_and_limit_until_it_is_deleted(
    store: Store,
) -> None:
    job_type = JobType("call", "echo/run", created_at=NOW, queue_order=QueueOrder.STACK)
    await store.registry.save_job_type(job_type)
    assert await store.registry.job_types() == [job_type]
    limited = replace(job_type, batch_limit=10_000, is_paused=True)
    await store.registry.save_job_type(limited)
    assert await store.registry.job_types() == [limited]
    await store.registry.delete_job_type("call")
    await store.registry.delete_job_type("call")
    assert await store.registry.job_types() == []


async def test_an_app_is_saved_replaced_and_deleted(store: Store) -> None:
    app = App("echo", "http://127.0.0.1:9000/base", 0.5, 3, NOW, {"/slow": 9.5})
    other = App("b", "http://localhost")
    await store.registry.save_app(replace(app, url="http://old"))
    await store.registry.save_app(app)
    await store.registry.save_app(other)
    assert await store.registry.apps() == [other, app]
    await store.registry.delete_app("echo")
    await store.registry.delete_app("nobody")
    assert await store.registry.apps() == [other]


@pytest.mark.spec("A19")
async def test_a_saved_node_comes_back_and_is_replaced_until_deleted(
    store: Store,
) -> None:
    await store.registry.save_node(NODE)
    assert await store.registry.nodes() == [NODE]
    left = replace(NODE, state=NodeState.LEFT, left_at=later(9), capabilities={})
    await store.registry.save_node(left)
    assert await store.registry.nodes() == [left]
    await store.registry.delete_node(NODE.id)
    await store.registry.delete_node(NODE.id)
    assert await store.registry.nodes() == []


async def test_a_saved_worker_comes_back_until_deleted(store: Store) -> None:
    await store.registry.save_workers([WORKER])
    broken = replace(WORKER, id="w2", state=WorkerState.ERROR, error="no\x00module")
    await store.registry.save_workers([broken])
    assert await store.registry.workers() == [
        WORKER,
        replace(broken, error="no\ufffdmodule"),
    ]
    await store.registry.delete_worker("w1")
    await store.registry.delete_worker("w1")
    assert [worker.id for worker in await store.registry.workers()] == ["w2"]


async def test_several_workers_are_saved_as_one_is(store: Store) -> None:
    await store.registry.save_workers([])
    await store.registry.save_workers([WORKER])
    busy = replace(WORKER, state=WorkerState.BUSY)
    await store.registry.save_workers([busy, replace(WORKER, id="w2")])
    assert await store.registry.workers() == [busy, replace(WORKER, id="w2")]


async def test_a_worker_and_its_type_keep_where_their_code_comes_from(
    store: Store,
) -> None:
    git = GitEnvironment("https://git.example.org/a/b", branch="main", project="sub")
    box = ContainerEnvironment("img:1", "/w", {"/a": "/b"}, {"K": "v"}, ("d",))
    spec = replace(WORKER.spec, environment=git, entry="e" * 64)
    await store.registry.save_workers([replace(WORKER, spec=spec)])
    assert [worker.spec for worker in await store.registry.workers()] == [spec]
    kind = WorkerType(
        "k", "a:B", {"p": 1}, "echo", box, 1, 4, "2", ("d" * 64, "e" * 64), NOW
    )
    await store.registry.save_worker_type(replace(kind, environment=None, versions=()))
    await store.registry.save_worker_type(kind)
    assert await store.registry.worker_types() == [kind]
    await store.registry.delete_worker_type("k")
    assert await store.registry.worker_types() == []


async def test_what_operators_say_of_a_node_comes_back(store: Store) -> None:
    held = replace(
        NODE,
        set_labels={"rack": "a", "gone": ""},
        taints=("spot",),
        set_taints=("owner=ann",),
        hold=Hold(HoldSource.OPERATOR, "new fan", True, NOW, later(60), "key k1"),
        windows=(
            Window("nightly", 3600.0, "0 3 * * *", "Europe/Berlin"),
            Window("once", 60.0, starts_at=later(90), reason="move", drain=False),
        ),
    )
    await store.registry.save_node(held)
    assert await store.registry.nodes() == [held]
    assert held.all_taints == {"spot", "owner=ann"}
    assert "gone" not in held.all_labels


async def test_beats_stamp_nodes_and_their_workers_only(store: Store) -> None:
    for name in ("n1", "n2"):
        await store.registry.save_node(replace(NODE, id=name))
        await store.registry.save_workers(
            [replace(WORKER, id=f"w-{name}", node_id=name)]
        )
    await store.metrics.save_beats(["n2", "unknown"], later(60), [])
    assert [n.last_heartbeat for n in await store.registry.nodes()] == [
        later(5),
        later(60),
    ]
    assert [w.last_heartbeat for w in await store.registry.workers()] == [
        NOW,
        later(60),
    ]


@pytest.mark.spec("A20")
async def test_samples_are_history_newest_first(store: Store) -> None:
    mine = [sample("n1", later(n), cpu_percent=n) for n in range(5)]
    await store.metrics.save_beats(["n1"], NOW, [*mine[:3], sample("n2", later(1))])
    await store.metrics.save_beats(["n1"], NOW, [*mine[2:]])
    assert await store.metrics.samples("n1", NOW) == mine[::-1]
    assert await store.metrics.samples("n1", later(3)) == mine[:2:-1]
    assert await store.metrics.samples("n1", NOW, limit=1) == [mine[-1]]
    assert await store.metrics.samples("n3", NOW) == []


async def test_a_limited_key_is_spent_exactly_as_often_as_it_allows(
    store: Store,
) -> None:
    key = Key("k1", "d" * 64, Scope.JOIN, "join", None, NOW, later(60), None, 3)
    await store.access.save_key(key)
    spent = await asyncio.gather(*(store.access.use_key("k1", NOW) for _ in range(8)))
    assert sum(spent) == 3
    assert [k.uses_left for k in await store.access.keys()] == [0]


async def test_what_a_join_token_grants_is_kept(store: Store) -> None:
    granted = JoinGrant({"zone": "trusted"}, ("spot", "tier=a"), ("echo",))
    key = Key("k1", "d" * 64, Scope.JOIN, created_at=NOW, granted=granted)
    await store.access.save_key(key)
    assert await store.access.keys() == [key]


async def test_sessions_that_were_ended_are_remembered_until_their_time(
    store: Store,
) -> None:
    await store.access.end_session("one", later(10), NOW)
    await store.access.end_session("one", later(10), NOW)
    await store.access.end_session("two", later(30), NOW)
    ended = {"one": later(10), "two": later(30)}
    assert await store.access.ended_sessions() == ended
    await store.access.end_session("three", later(40), later(10))
    assert set(await store.access.ended_sessions()) == {"two", "three"}


async def test_a_key_without_a_limit_is_never_spent(store: Store) -> None:
    key = Key("k1", "d" * 64, Scope.NODE, "node", "n1", NOW)
    await store.access.save_key(key)
    assert await store.access.use_key("k1", NOW)
    assert await store.access.keys() == [key]


async def test_a_key_that_is_not_valid_cannot_be_used(store: Store) -> None:
    key = Key("k1", "d" * 64, Scope.JOIN, created_at=NOW, uses_left=3)
    await store.access.save_key(replace(key, id="old", expires_at=later(10)))
    await store.access.save_key(replace(key, id="gone", revoked_at=NOW))
    assert await store.access.use_key("old", later(9))
    assert not await store.access.use_key("old", later(10))
    assert not await store.access.use_key("gone", NOW)
    assert not await store.access.use_key("nobody", NOW)

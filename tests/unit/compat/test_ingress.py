"""The steps of the ingress one by one, on a real Redis, with deaths between them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from redis.asyncio import Redis

from corral.client import AsyncClient, Patience
from corral.compat.broker import (
    MARK,
    PENDING,
    REFUSED,
    OwedResults,
    QueueList,
    connect,
    lists_of,
)
from corral.compat.ingress import Ingress, IngressConfig, make_known, mark_of
from corral.compat.result_backend import LABEL, ResultWriter
from corral.compat.retry import insist, persist
from corral.errors import SettingsError
from tests.unit.client.stand_in import Answer, Seen, StandIn, fault, task_out
from tests.unit.worker.supervised import Broker

MARKED = "this backend"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("i"))
    yield made
    made.client.close()
    made.kill()


@pytest.fixture
async def redis(broker: Broker) -> AsyncIterator[Redis]:
    broker.client.flushall()
    async with connect(broker.url) as made:
        yield made


@pytest.fixture
def plain(broker: Broker) -> Iterator[Celery]:
    made = Celery("plain", broker=broker.url, set_as_current=False)
    yield made
    made.close()


@pytest.fixture
async def desk(manager: StandIn) -> AsyncIterator[AsyncClient]:
    patience = Patience(total_s=5.0, first_s=5.0)
    async with AsyncClient(manager.url, "corral_k_s", patience=patience) as client:
        yield client


def accepting(seen: Seen) -> Answer:
    """Takes all but the type `nobody`, as the manager answers."""
    ids, errors = [], []
    for index, task in enumerate(seen.json["tasks"]):
        is_known = task["task_type"] != "celery.nobody"
        ids.append(task["task_id"] if is_known else None)
        if not is_known:
            told = {"index": index, "code": "unknown_task_type", "message": "unknown"}
            errors.append(told)
    return Answer({"task_ids": ids, "errors": errors}, 201)


def make(redis: Redis, desk: AsyncClient, *, results: bool = True) -> Ingress:
    mirror = ResultWriter(desk, redis, OwedResults(redis), MARKED) if results else None
    return Ingress(IngressConfig("unused"), desk, redis, mirror)


def submitted(manager: StandIn) -> list[list[str]]:
    asked = manager.asked("POST /tasks/batch")
    return [[task["task_id"] for task in seen.json["tasks"]] for seen in asked]


async def test_message_is_let_go_only_after_it_is_stored(
    manager: StandIn, redis: Redis, desk: AsyncClient, plain: Celery
) -> None:
    ids = [plain.send_task("add", (n,)).id for n in range(3)]
    inbox = QueueList(redis, "celery")
    held = await inbox.take()
    # Dead here: a successor finds them in hand, in the same order.
    assert await redis.llen("celery") == 0
    assert await QueueList(redis, "celery").take() == held
    manager.on("POST /tasks/batch", accepting)
    ingress = make(redis, desk)
    await ingress._judge(held, "celery")
    # Dead here: stored, and handed in once more under the same ids.
    await ingress.turn(inbox)
    assert submitted(manager) == [ids, ids]
    assert await OwedResults(redis).owed() == set(ids)
    assert await inbox.take() == []


async def test_manager_that_cannot_store_leaves_messages_in_hand(
    manager: StandIn, redis: Redis, desk: AsyncClient, plain: Celery
) -> None:
    plain.send_task("add")
    away = fault("store_unavailable", 503, Retry_After="0")
    manager.on("POST /tasks/batch", away, away, accepting)
    inbox = QueueList(redis, "celery")
    await make(redis, desk).turn(inbox)
    assert len(submitted(manager)) == 3
    assert await inbox.take() == []


async def test_refused_message_is_kept_and_hinders_no_other(
    manager: StandIn, redis: Redis, desk: AsyncClient, plain: Celery
) -> None:
    manager.on("POST /tasks/batch", accepting)
    nobody, good = plain.send_task("nobody"), plain.send_task("add")
    await make(redis, desk).turn(QueueList(redis, "celery"))
    assert await OwedResults(redis).owed() == {good.id}
    (kept,) = await redis.lrange(REFUSED, 0, -1)
    assert json.loads(kept)["headers"]["id"] == nobody.id
    (answer,) = await OwedResults(redis).unanswered()
    assert (answer.task_id, answer.code) == (nobody.id, "unknown_task_type")
    assert "celery." not in answer.reason


async def test_batch_the_manager_refuses_whole_is_halved(
    manager: StandIn, redis: Redis, desk: AsyncClient, plain: Celery
) -> None:
    def strict(seen: Seen) -> Answer:
        if len(seen.body) > 1500:
            return fault("too_large", 413, "too large")
        return accepting(seen)

    manager.on("POST /tasks/batch", strict)
    sent = [plain.send_task("add", ("x" * n,)).id for n in (1, 2, 5000, 3)]
    await make(redis, desk).turn(QueueList(redis, "celery"))
    owed = await OwedResults(redis).owed()
    assert owed == {sent[0], sent[1], sent[3]}
    assert await redis.llen(REFUSED) == 1


async def test_without_result_backend_nothing_is_owed(
    manager: StandIn, redis: Redis, desk: AsyncClient, plain: Celery
) -> None:
    manager.on("POST /tasks/batch", accepting)
    plain.send_task("add"), plain.send_task("nobody")
    await make(redis, desk, results=False).turn(QueueList(redis, "celery"))
    assert not await redis.exists(PENDING)
    assert await OwedResults(redis).unanswered() == []
    task = manager.asked("POST /tasks/batch")[0].json["tasks"][0]
    assert task["labels"] == {"celery-queue": "celery"}


async def test_ignored_result_is_not_owed(
    manager: StandIn, redis: Redis, desk: AsyncClient, plain: Celery
) -> None:
    manager.on("POST /tasks/batch", accepting)
    plain.send_task("add", ignore_result=True)
    await make(redis, desk).turn(QueueList(redis, "celery"))
    assert not await redis.exists(PENDING)


async def test_every_list_of_a_queue_is_taken_from(
    manager: StandIn, redis: Redis, desk: AsyncClient, plain: Celery
) -> None:
    manager.on("POST /tasks/batch", accepting)
    for level in (0, 3, 6, 9):
        plain.send_task("add", priority=level)
    lists = list(lists_of(["celery"]))
    for name in lists:
        await make(redis, desk).turn(QueueList(redis, name))
    tasks = [s.json["tasks"][0] for s in manager.asked("POST /tasks/batch")]
    assert [task["priority"] for task in tasks] == [0, -3, -6, -9]
    assert {task["labels"]["celery-queue"] for task in tasks} == {"celery"}


async def test_id_of_somebody_elses_task_gives_nothing_away(
    manager: StandIn, redis: Redis, desk: AsyncClient
) -> None:
    """A client may choose any id; it learns nothing about tasks not its own."""
    theirs = task_out("t1", result="secret", labels={LABEL: "another backend"})
    manager.on("POST /tasks/collect", {"tasks": [theirs]})
    meta = await mirrored(
        ResultWriter(desk, redis, OwedResults(redis), MARKED), redis, "t1"
    )
    assert meta["status"] == "FAILURE"
    assert "secret" not in json.dumps(meta)


async def test_task_the_cluster_has_forgotten_is_told_as_lost(
    manager: StandIn, redis: Redis, desk: AsyncClient
) -> None:
    manager.on("POST /tasks/collect", {"tasks": [], "unknown": ["t1"]})
    meta = await mirrored(
        ResultWriter(desk, redis, OwedResults(redis), MARKED), redis, "t1"
    )
    assert meta["result"]["exc_type"] == "LookupError"


async def mirrored(mirror: ResultWriter, redis: Redis, task_id: str) -> Any:
    """What stands in the backend once a task was watched."""
    mirror.watch([task_id])
    await mirror._watch_fresh()
    found = await redis.get(f"celery-task-meta-{task_id}")
    assert found is not None
    return json.loads(found)


async def test_emptied_redis_is_filled_from_the_managers_word(
    manager: StandIn, redis: Redis, desk: AsyncClient
) -> None:
    mine = {LABEL: MARKED}
    live = task_out("live", "running", labels=mine)
    fresh = task_out("fresh", labels=mine, created_at="2999-01-01T00:00:00Z")
    old = task_out("old", labels=mine, created_at="2020-01-01T00:00:00Z")

    def listed(seen: Seen) -> Answer:
        assert seen.query["label"] == f"{LABEL}:{MARKED}"
        return Answer({"tasks": [live] if "status" in seen.query else [fresh, old]})

    manager.on("GET /tasks", listed)
    ledger = OwedResults(redis)
    await ResultWriter(desk, redis, ledger, MARKED).recover()
    assert await ledger.owed() == {"live", "fresh"}
    assert await redis.exists(MARK)
    # Whole again: the manager is not asked a second time.
    await ResultWriter(desk, redis, ledger, MARKED).recover()
    assert len(manager.asked("GET /tasks")) == 2


async def test_named_tasks_are_made_known_once(
    manager: StandIn, desk: AsyncClient
) -> None:
    manager.on("GET /job-types", {"job_types": [{"name": "echo"}]})
    manager.on("POST /job-types", Answer({"name": "x"}, 201))
    await make_known(desk, {"shop.add": "", "shop.echo": "echo"})
    asked = [seen.json for seen in manager.asked("POST /job-types")]
    assert asked == [{"name": "celery.shop.add"}]


async def test_request_to_stop_is_kept_when_a_step_swallows_it() -> None:
    begun = asyncio.Event()

    async def deaf() -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    looping = asyncio.create_task(persist(deaf))
    await begun.wait()
    looping.cancel()
    done, _ = await asyncio.wait([looping], timeout=10)
    assert done == {looping}
    assert looping.cancelled()


async def test_wrong_password_ends_the_ingress_with_one_line(redis: Redis) -> None:
    async def locked() -> None:
        await redis.execute_command("AUTH", "x", "y")  # type: ignore[no-untyped-call]

    with pytest.raises(SettingsError, match="Redis"):
        await insist(locked)


def test_mark_of_a_backend_has_no_password_in_it() -> None:
    def mark(url: str) -> str:
        return mark_of(IngressConfig("redis://b", result_url=url))

    assert mark("redis://:one@host/0") == mark("redis://:two@host/0")
    assert mark("redis://host/0") != mark("redis://host/1")


def test_socket_of_celerys_kind_is_understood(tmp_path: Path) -> None:
    pool = connect("redis+socket:///run/r.sock?virtual_host=3").connection_pool
    assert pool.connection_kwargs["path"] == "/run/r.sock"
    assert pool.connection_kwargs["db"] == 3

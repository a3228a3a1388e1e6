"""Webhooks over real sockets: signed, tried again, and only where they may lead."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from corral.manager.outbound.address import GatewayConfig
from corral.manager.outbound.task_webhooks import SHARE
from corral.store.base import TaskFilter
from tests.twins.store import MemoryStore
from tests.unit.api.world import CONFIG, StepClock, World, fault, quiet, running
from tests.unit.client.stand_in import DROP, Answer, Seen, StandIn, serve

HOOK = "POST /hook"


@pytest.fixture
def receiver() -> Iterator[StandIn]:
    with serve() as made:
        made.on(HOOK, "thanks")
        yield made


async def end(world: World, *urls: str, **more: Any) -> str:
    """Submit a task with webhooks and cancel it; its id."""
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit(notify=list(urls), **more)
    await world.submit.delete(f"/tasks/{task_id}")
    return task_id


async def tell(world: World) -> None:
    await world.manager.outbound.webhooks.look()
    await world.manager.outbound.webhooks.outbox.settled()


async def owed(world: World) -> int:
    return len(await world.store.queues.notices())


async def test_the_end_of_a_task_is_told_signed(
    world: World, receiver: StandIn
) -> None:
    url = f"{receiver.url}/hook?token=x"
    worker = await world.worker()
    task_id = await world.submit.submit(notify=url, labels={"team": "blue"})
    await quiet()
    item = worker.take_one()
    assert item["labels"] == {"team": "blue"}
    await tell(world)
    assert receiver.seen == []
    await worker.finish(item, {"answer": 42})
    await tell(world)
    (call,) = receiver.seen
    secret = (await world.admin.ask("/cluster/webhook-secret"))["secret"]
    mine = hmac.new(secret.encode(), call.body, hashlib.sha256).hexdigest()
    assert call.headers["x-corral-signature"] == f"sha256={mine}"
    assert call.headers["x-corral-event"] == "task.ended"
    assert call.headers["x-corral-delivery"] == f"{task_id}:1"
    assert call.headers["content-type"] == "application/json"
    request_id = (await world.read.task(task_id))["request_id"]
    assert call.headers["x-request-id"] == request_id
    assert call.headers["host"] == receiver.url.removeprefix("http://")
    assert call.query == {"token": "x"}
    told = call.json
    assert told["event"] == "task.ended"
    assert told["sent_at"].endswith("Z")
    task = told["task"]
    assert (task["task_id"], task["status"]) == (task_id, "completed")
    assert (task["task_type"], task["run"]) == ("echo", 1)
    assert task["result"] == {"answer": 42}
    assert task["labels"] == {"team": "blue"}
    assert task["request_id"] == request_id
    assert await owed(world) == 0
    await tell(world)
    assert len(receiver.seen) == 1


async def test_a_receiver_that_fails_is_told_again_and_again(
    world: World, receiver: StandIn
) -> None:
    bad = Answer({}, 500)
    moved = Answer({}, 302, {"location": f"{receiver.url}/elsewhere"})
    receiver.on(HOOK, bad, DROP, moved, "thanks")
    task_id = await end(world, f"{receiver.url}/hook")
    tries = []
    for _ in range(12):
        await tell(world)
        tries.append(len(receiver.seen))
        world.clock.step(7)
    assert tries[0] == 1
    assert len(receiver.seen) == 4
    assert [call.headers["x-corral-try"] for call in receiver.seen] == list("1234")
    assert {call.headers["x-corral-delivery"] for call in receiver.seen} == {
        f"{task_id}:1"
    }
    assert await owed(world) == 0


async def test_a_receiver_that_is_down_is_told_after_a_restart_of_the_manager() -> None:
    inner, clock = MemoryStore(), StepClock()
    with serve() as receiver:
        url = f"{receiver.url}/hook"
        async with running(CONFIG, inner, clock) as world:
            receiver.on(HOOK, Answer({}, 503))
            task_id = await end(world, url)
            later = await world.submit.submit(notify=url)
            await tell(world)
            (notice, _) = await world.store.queues.notices([task_id, later])
            assert notice.tries == 1
        receiver.seen.clear()
        receiver.on(HOOK, "thanks")
        async with running(CONFIG, inner, clock) as world:
            await tell(world)
            assert receiver.seen == []
            clock.step(60)
            await tell(world)
            (call,) = receiver.seen
            assert call.json["task"]["task_id"] == task_id
            assert call.headers["x-corral-try"] == "2"
            await world.submit.delete(f"/tasks/{later}")
            await tell(world)
            assert receiver.seen[-1].json["task"]["status"] == "cancelled"
            assert await owed(world) == 0


async def test_what_ended_while_a_manager_died_is_told_by_the_next(
    receiver: StandIn,
) -> None:
    inner, clock = MemoryStore(), StepClock()
    async with running(CONFIG, inner, clock) as world:
        # It dies between the settlement and the call.
        await world.manager.halt()
        task_id = await end(world, f"{receiver.url}/hook")
    assert receiver.seen == []
    async with running(CONFIG, inner, clock) as world:
        await tell(world)
        assert [c.json["task"]["task_id"] for c in receiver.seen] == [task_id]


async def test_a_slow_receiver_holds_up_nobody_else(
    world: World, receiver: StandIn
) -> None:
    gate = threading.Event()

    def slow(seen: Seen) -> Answer:
        gate.wait(30)
        return Answer({})

    with serve() as lame:
        lame.on(HOOK, slow)
        for _ in range(SHARE + 3):
            await end(world, f"{lame.url}/hook")
        quick = await end(world, f"{receiver.url}/hook")
        await world.manager.outbound.webhooks.look()
        await until(lambda: bool(receiver.seen) and len(lame.seen) == SHARE)
        assert receiver.seen[0].json["task"]["task_id"] == quick
        gate.set()
        await world.manager.outbound.webhooks.outbox.settled()
        assert len(lame.seen) == SHARE + 3
    assert await owed(world) == 0


async def until(check: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if check():
            return
        await quiet(1)
    raise AssertionError("it did not come")


async def test_a_receiver_that_never_answers_is_given_up_and_that_is_an_event(
    world: World,
) -> None:
    with serve() as gone:
        url = f"{gone.url}/hook?token=secret"
    task_id = await end(world, url)
    for _ in range(100):
        await tell(world)
        if not await owed(world):
            break
        world.clock.step(3600)
    passed = world.clock.now() - StepClock().now()
    assert 20 < passed.total_seconds() / 3600 < 26
    (event,) = await world.store.events.events(limit=1)
    assert event.event_type == "webhook_failed"
    assert event.task_ids == (task_id,)
    assert "secret" not in json.dumps(dict(event.data)) + event.title


async def test_a_receiver_that_is_gone_for_good_is_asked_once(
    world: World, receiver: StandIn
) -> None:
    receiver.on(HOOK, Answer({}, 410))
    await end(world, f"{receiver.url}/hook")
    await tell(world)
    assert await owed(world) == 0
    assert len(receiver.seen) == 1


async def test_every_run_is_told_of_and_every_receiver(
    world: World, receiver: StandIn
) -> None:
    receiver.on("POST /b", "thanks")
    urls = [f"{receiver.url}/hook", f"{receiver.url}/b"]
    task_id = await end(world, *urls, *urls)
    await tell(world)
    assert sorted(call.path for call in receiver.seen) == ["/b", "/hook"]
    await world.submit.tell(f"/tasks/{task_id}/requeue")
    await tell(world)
    assert len(receiver.seen) == 2
    await world.submit.delete(f"/tasks/{task_id}")
    await tell(world)
    runs = [call.headers["x-corral-delivery"][-1] for call in receiver.seen]
    assert runs == ["1", "1", "2", "2"]


async def test_a_run_that_ends_during_the_call_for_the_last_is_told(
    world: World, receiver: StandIn
) -> None:
    gate = threading.Event()

    def slow(seen: Seen) -> Answer:
        gate.wait(30)
        return Answer({}, 500)

    receiver.on(HOOK, slow, "thanks")
    task_id = await end(world, f"{receiver.url}/hook")
    await world.manager.outbound.webhooks.look()
    await until(lambda: bool(receiver.seen))
    await world.submit.tell(f"/tasks/{task_id}/requeue")
    await world.submit.delete(f"/tasks/{task_id}")
    await world.manager.outbound.webhooks.look()
    gate.set()
    await tell(world)
    world.clock.step(7)
    await tell(world)
    deliveries = [call.headers["x-corral-delivery"] for call in receiver.seen]
    assert deliveries == [f"{task_id}:1", f"{task_id}:2"]
    assert await owed(world) == 0


async def test_an_outage_of_the_store_forgets_nobody(
    world: World, receiver: StandIn
) -> None:
    await end(world, f"{receiver.url}/hook")
    world.store.is_down = True
    try:
        await tell(world)
    except Exception:  # noqa: BLE001
        assert receiver.seen == []
    world.store.is_down = False
    world.clock.step(60)
    await tell(world)
    assert len(receiver.seen) == 1


async def test_the_webhooks_of_a_task_are_no_labels_of_it(
    world: World, receiver: StandIn
) -> None:
    url = f"{receiver.url}/hook"
    task_id = await end(world, url)
    task = await world.read.task(task_id)
    assert (task["labels"], task["notify"]) == ({}, [url])
    page = await world.read.ask("/tasks")
    assert page["tasks"][0]["labels"] == {}
    assert "notify" not in page["tasks"][0]
    body = {"task_type": "echo", "labels": {"corral.notify": url}}
    refused = fault(await world.submit.post("/tasks", body), 422, "invalid_field")
    assert "the option notify" in refused["message"]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.test/",
        "a.test/hook",
        "http://",
        "http://user:word@127.0.0.1/",
        "http://127.0.0.1/#part",
        "http://127.0.0.1/a b",
        "http://127.0.0.1:0/",
        "http://127.0.0.1:99999/",
        "http://169.254.169.254/latest",
        "http://[fd00:ec2::254]/",
        "http://0.0.0.0/",
        "http://127.0.0.1:8002/tasks",
        "http://127.0.0.1/" + "x" * 3000,
    ],
)
async def test_a_webhook_that_leads_where_none_may_is_refused(url: str) -> None:
    gateway = GatewayConfig(own=(("127.0.0.1", 8002),), allow=("127.0.0.1",))
    async with running(replace(CONFIG, gateway=gateway)) as world:
        await world.operate.tell("/job-types", {"name": "echo"})
        body = {"task_type": "echo", "notify": url}
        error = fault(await world.submit.post("/tasks", body), 422, "invalid_field")
        assert error["details"]["field"] == "notify"
        both = {"tasks": [{"task_type": "echo"}, body]}
        batch = await world.submit.tell("/tasks/batch", both)
        assert (batch["accepted"], batch["refused"]) == (1, 1)
        page = await world.store.tasks.list_tasks(TaskFilter(), 10)
        assert page.total == 1


async def test_a_manager_others_can_reach_calls_only_whom_it_is_allowed(
    receiver: StandIn,
) -> None:
    strict = GatewayConfig(is_exposed=True, allow=("127.0.0.9",))
    async with running(replace(CONFIG, gateway=strict)) as world:
        await world.operate.tell("/job-types", {"name": "echo"})
        body = {"task_type": "echo", "notify": f"{receiver.url}/hook"}
        error = fault(await world.submit.post("/tasks", body), 422, "invalid_field")
        assert "CORRAL_GATEWAY_ALLOW" in error["message"]

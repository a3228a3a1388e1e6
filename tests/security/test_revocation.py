"""What is revoked is over within seconds, also where it has begun before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.security.conftest import Attacked
from tests.twins.store import MemoryStore
from tests.unit.api.world import (
    Caller,
    StepClock,
    World,
    declared,
    fault,
    quiet,
    running,
    said,
)

SOON_S = 5.0
PAGE = {"x-corral-page": "1"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as made:
        yield made


async def guest(world: World, role: str = "submit", name: str = "guest") -> Caller:
    made = await world.admin.tell("/keys", {"name": name, "role": role})
    return Caller(world.http, made["key"])


async def revoke(world: World, name: str = "guest") -> None:
    said(await world.admin.delete(f"/keys/{name}"))
    # What their loops do within a second.
    await world.manager.access.step()
    await world.manager.events.cluster_events.step()


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/{id}?wait=60",
        "/tasks/{id}/logs?wait=60",
        "/tasks/{id}/output?wait=60",
        "/tasks/{id}/logs/stream",
        "/tasks/{id}/stream",
        "/events/stream",
    ],
)
async def test_m3_streams_and_polls_end_with_their_key(world: World, path: str) -> None:
    await world.worker("echo")
    task_id = await world.submit.submit()
    who = await guest(world, "read")
    asking = asyncio.create_task(who.get(path.format(id=task_id)))
    await quiet()
    assert not asking.done()
    await revoke(world)
    async with asyncio.timeout(SOON_S):
        answer = await asking
    # A stream has begun well and breaks off; what has not begun is refused.
    if answer.status_code != 200:
        fault(answer, 401, "unauthenticated")
    assert b"event: end" not in answer.content


async def test_m3_posts_that_only_wait_end_with_their_key(world: World) -> None:
    await world.worker("echo")
    task_id = await world.submit.submit()
    who = await guest(world)
    asked = {"task_ids": [task_id], "wait": 60}
    waits = [
        asyncio.create_task(who.post("/tasks/collect", asked)),
        asyncio.create_task(who.post("/tasks?wait=60", {"task_type": "echo"})),
    ]
    await quiet()
    await revoke(world)
    async with asyncio.timeout(SOON_S):
        for answer in await asyncio.gather(*waits):
            fault(answer, 401, "unauthenticated")
    # What was asked for before is done all the same.
    assert (await world.read.ask("/tasks"))["total"] == 2


async def test_m3_other_callers_go_on_where_one_is_revoked(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    await guest(world)
    asking = asyncio.create_task(world.read.get(f"/tasks/{task_id}?wait=60"))
    await quiet()
    await revoke(world)
    await worker.finish(worker.take_one(), 7)
    assert said(await asking)["result"] == 7


def test_m3_a_followed_log_breaks_off_on_a_real_connection(attacked: Attacked) -> None:
    client = attacked.cluster.client
    made = client.create_key("follower", role="submit")
    client.pause_job_type("echo")
    try:
        task_id = client.submit("echo", {})
        with httpx.Client(
            base_url=attacked.cluster.url,
            headers={"Authorization": f"Bearer {made.key}"},
            timeout=30,
            trust_env=False,
        ) as follower:
            path = f"/tasks/{task_id}/logs/stream"
            with follower.stream("GET", path) as stream:
                chunks = stream.iter_raw()
                assert next(chunks)
                client.revoke_key("follower")
                since = time.monotonic()
                assert b"event: end" not in b"".join(chunks)
            assert time.monotonic() - since < SOON_S
            assert follower.get(path).status_code == 401
        client.cancel(task_id)
    finally:
        client.resume_job_type("echo")


async def test_m3_a_node_removed_by_force_has_no_key_from_then_on(
    world: World,
) -> None:
    worker = await world.worker("echo")
    node = worker.node
    polling = asyncio.create_task(
        node.caller.get(f"/nodes/{node.id}/desired?since=-1&wait=0")
    )
    await polling
    version = said(polling.result())["version"]
    path = f"/nodes/{node.id}/desired"
    polling = asyncio.create_task(node.caller.get(path, since=version, wait=25))
    await quiet()
    said(await world.operate.delete(f"/nodes/{node.id}?force=true"))
    await world.manager.access.step()
    async with asyncio.timeout(SOON_S):
        assert (await polling).status_code == 401
    fault(await node.try_beat(worker.word()), 401, "unauthenticated")
    body = {"hostname": "h", "workers": []}
    answer = await node.caller.post(f"/nodes/{node.id}/register", body)
    fault(answer, 401, "unauthenticated")


async def test_m3_a_node_that_leaves_neither_registers_nor_gains_time(
    world: World,
) -> None:
    worker = await world.worker("echo")
    node = worker.node
    path = f"/nodes/{node.id}"
    said(await node.caller.delete(path))
    for _ in range(6):
        world.clock.step(9.9)
        await node.try_beat(worker.word())
        await node.caller.delete(path)
        await world.manager.nodes.leave.step()
    said(await node.try_beat(worker.word()))
    world.clock.step(1)
    await world.manager.nodes.leave.step()
    fault(await node.try_beat(worker.word()), 401, "unauthenticated")

    other = await world.node(declared("one"))
    said(await world.operate.delete(f"/nodes/{other.id}"))
    body = {"hostname": "h", "workers": [declared("one")]}
    answer = await other.caller.post(f"/nodes/{other.id}/register", body)
    fault(answer, 401, "unauthenticated")


async def test_m3_a_session_that_was_ended_stays_so_after_a_restart() -> None:
    kept, clock = MemoryStore(), StepClock()
    async with running(inner=kept, clock=clock) as world:
        begun = await world.read.post("/ui/session", {})
        cookie = {"cookie": begun.headers["set-cookie"].partition(";")[0], **PAGE}
        said(await world.nobody.send("GET", "/tasks", headers=cookie))
        said(await world.nobody.send("DELETE", "/ui/session", headers=cookie))
        answer = await world.nobody.send("GET", "/tasks", headers=cookie)
        fault(answer, 401, "unauthenticated")
    async with running(inner=kept, clock=clock) as world:
        answer = await world.nobody.send("GET", "/tasks", headers=cookie)
        fault(answer, 401, "unauthenticated")


async def test_m3_a_schedule_ends_with_its_key_and_says_why(world: World) -> None:
    await world.worker("echo")
    who = await guest(world, "operate")
    plan = {"name": "nightly", "cron": "0 3 * * *", "task": {"task_type": "echo"}}
    said(await who.post("/schedules", plan))
    await revoke(world)
    world.clock.step(86_400)
    schedules = world.manager.queues.schedules
    await schedules.fire()
    assert (await world.read.ask("/tasks"))["total"] == 0
    shown = await world.read.ask("/schedules/nightly")
    assert shown["status"] == "paused"
    assert "revoked" in shown["note"]
    answer = await world.operate.post("/schedules/nightly/run")
    fault(answer, 409, "conflict")
    # Whoever resumes it answers for it.
    said(await world.operate.post("/schedules/nightly/resume"))
    world.clock.step(86_400)
    await schedules.fire()
    (task,) = (await world.read.ask("/tasks"))["tasks"]
    assert (await world.read.task(task["task_id"]))["owner"] == "operate"


async def test_m3_join_tokens_are_listed_and_revoked(world: World) -> None:
    made = await world.admin.tell("/join-tokens", {"uses": 9})
    for who in (world.operate, world.submit, world.read):
        fault(await who.get("/join-tokens"), 403, "forbidden")
        path = f"/join-tokens/{made['token_id']}"
        fault(await who.delete(path), 403, "forbidden")
    (shown,) = (await world.admin.ask("/join-tokens"))["tokens"]
    assert (shown["status"], shown["uses_left"]) == ("valid", 9)
    assert "token" not in shown
    said(await world.admin.delete(f"/join-tokens/{shown['token_id']}"))
    joiner = Caller(world.http, made["token"])
    answer = await joiner.post("/nodes/join", {"hostname": "h"})
    fault(answer, 401, "unauthenticated")
    (shown,) = (await world.admin.ask("/join-tokens"))["tokens"]
    assert shown["status"] == "revoked"
    answer = await world.admin.delete(f"/join-tokens/{shown['token_id']}")
    fault(answer, 404, "not_found")

"""/keys: made, shown once, used, listed and revoked; whose tasks they make."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from corral.core.access.key import split_key
from tests.twins.store import MemoryStore
from tests.unit.api.world import Caller, Json, World, fault, running, said


async def make(world: World, name: str, **more: Any) -> tuple[Json, Caller]:
    """A key by this name, and whoever has it."""
    told = await world.admin.tell("/keys", {"name": name, **more})
    return told, Caller(world.http, told["key"])


async def row(world: World, name: str) -> Json:
    rows: list[Json] = (await world.admin.ask("/keys"))["keys"]
    return next(row for row in rows if row["name"] == name)


async def share(world: World, name: str, **limits: Any) -> Json:
    return said(await world.admin.send("PUT", "/shares", json={"name": name, **limits}))


async def test_tasks_belong_to_the_name_of_the_key_they_came_with(
    world: World,
) -> None:
    await world.worker("echo")
    _, ann = await make(world, "ann")
    _, bob = await make(world, "bob")
    ids = [await who.submit() for who in (ann, bob, ann)]
    owners = [(await world.read.task(task_id))["owner"] for task_id in ids]
    assert owners == ["ann", "bob", "ann"]


@pytest.mark.parametrize("by", ["name", "key_id"])
async def test_a_share_goes_by_the_name_or_the_id_of_a_key(
    world: World, by: str
) -> None:
    worker = await world.worker("echo", concurrency=4)
    told, ann = await make(world, "ann")
    _, bob = await make(world, "bob")
    made = await share(world, f"owner={told[by]}", max_running=1)
    assert made["name"] == "owner=ann"
    first, second, other = [await who.submit() for who in (ann, ann, bob)]
    assert {item["task_id"] for item in worker.take()} == {first, other}
    waiting = (await world.read.task(second))["waiting"]
    assert waiting["message"].startswith("share owner=ann runs 1 of at most 1")
    gone = said(await world.admin.delete(f"/shares/owner={told[by]}"))
    assert gone["name"] == "owner=ann"


async def test_a_revoked_key_is_refused_at_once_and_its_name_is_free(
    world: World,
) -> None:
    await world.worker("echo")
    told, ann = await make(world, "ann")
    old = await ann.submit()
    gone = said(await world.admin.delete("/keys/ann"))
    assert (gone["key_id"], gone["status"]) == (told["key_id"], "revoked")
    fault(await ann.get("/tasks"), 401, "unauthenticated")
    fault(await world.admin.delete("/keys/ann"), 404, "not_found")
    # Whoever gets the next key of that name goes on where she was.
    _, ann = await make(world, "ann")
    new = await ann.submit()
    assert [(await ann.task(t))["owner"] for t in (old, new)] == ["ann", "ann"]


async def test_a_key_is_shown_once_and_kept_as_a_digest(world: World) -> None:
    told, _ = await make(world, "ann")
    parts = split_key(told["key"])
    assert parts is not None
    (stored,) = [key for key in await world.store.access.keys() if key.name == "ann"]
    assert parts[1] not in repr(stored)
    listed = await world.admin.get("/keys")
    assert parts[1] not in listed.text
    assert "digest" not in listed.text


@pytest.mark.parametrize(
    ("role", "may_submit", "may_make"),
    [
        ("read", False, False),
        ("submit", True, False),
        ("operate", True, False),
        ("admin", True, True),
    ],
)
async def test_a_role_says_what_a_key_may_do(
    world: World, role: str, may_submit: bool, may_make: bool
) -> None:
    await world.worker("echo")
    told, who = await make(world, "ann", role=role)
    assert told["role"] == role
    submitted = await who.post("/tasks", {"task_type": "echo"})
    assert submitted.is_success is may_submit
    assert (await who.post("/keys", {"name": "bob"})).is_success is may_make


async def test_a_key_with_a_time_ends_by_itself(world: World) -> None:
    told, ann = await make(world, "ann", ttl_s=60)
    made_at = datetime.fromisoformat(told["created_at"])
    ends_at = datetime.fromisoformat(told["expires_at"])
    assert (ends_at - made_at).total_seconds() == 60
    assert (await ann.get("/tasks")).is_success
    world.clock.step(60)
    fault(await ann.get("/tasks"), 401, "unauthenticated")
    assert (await row(world, "ann"))["status"] == "expired"
    # Nobody has to revoke what has ended.
    await make(world, "ann")


async def test_it_is_shown_when_a_key_was_last_used_also_after_a_restart() -> None:
    store = MemoryStore()
    async with running(inner=store) as world:
        _, ann = await make(world, "ann")
        assert (await row(world, "ann"))["last_used_at"] is None
        world.clock.step(100)
        await ann.get("/tasks")
        used = (await row(world, "ann"))["last_used_at"]
        assert datetime.fromisoformat(used) == world.clock.now()
        await world.manager.access.keys.stamp_uses(world.clock.monotonic())
        clock = world.clock
    async with running(inner=store, clock=clock) as world:
        assert (await row(world, "ann"))["last_used_at"] == used


async def test_making_and_revoking_leave_audit_rows(world: World) -> None:
    told, _ = await make(world, "ann", role="operate")
    said(await world.admin.delete(f"/keys/{told['key_id']}"))
    await world.manager.access.audit.flush()
    rows = [r for r in await world.store.access.audit() if r.action.startswith("key.")]
    assert [(r.action, r.target, r.data["name"]) for r in rows] == [
        ("key.revoke", told["key_id"], "ann"),
        ("key.create", told["key_id"], "ann"),
    ]
    assert told["key"].split("_", 2)[2] not in repr(rows)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "x" * 64}, "name"),
        ({"name": "corral"}, "name"),
        ({"name": "ann", "role": "node"}, "role"),
        ({"name": "ann", "role": "king"}, "role"),
        ({"name": "ann", "ttl_s": 0}, "ttl_s"),
        ({"name": "ann", "ttl_s": 1e12}, "ttl_s"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(
    world: World, body: Json, field: str
) -> None:
    error = fault(await world.admin.post("/keys", body), 422, "invalid_field")
    assert error["details"]["field"] == field


async def test_two_keys_cannot_have_one_name(world: World) -> None:
    told, _ = await make(world, "ann")
    for name in ("ann", told["key_id"]):
        error = fault(await world.admin.post("/keys", {"name": name}), 409, "conflict")
        assert "corral key revoke" in error["message"]


async def test_nobody_revokes_the_key_he_uses(world: World) -> None:
    _, ann = await make(world, "ann", role="admin")
    error = fault(await ann.delete("/keys/ann"), 409, "conflict")
    assert "with another" in error["message"]
    said(await world.admin.delete("/keys/ann"))


async def test_keys_of_nodes_are_not_among_those_of_people(world: World) -> None:
    node = await world.node()
    rows = (await world.admin.ask("/keys"))["keys"]
    assert {row["role"] for row in rows} == {"admin", "operate", "submit", "read"}
    key = node.caller.headers["Authorization"].removeprefix("Bearer ")
    parts = split_key(key)
    assert parts is not None
    fault(await world.admin.delete(f"/keys/{parts[0]}"), 404, "not_found")

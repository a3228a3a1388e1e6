"""Breakers of nodes as users see them: workers, tasks, nodes, events, resets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.world import FakeNode, Json, World, declared, fault

KEY = "my:Worker"
TEXT = "breaker open: 5 failures in 300 s, next try in 42 s: no module"


def breaker(key: str = KEY, **more: Any) -> Json:
    figures = {"failures": 5, "window_s": 300.0, "age_s": 18.0, "next_probe_s": 42.0}
    return {"key": key, "state": "open", "error": "no module", **figures, **more}


def held(node: FakeNode, name: str, key: str = KEY) -> Json:
    """What an agent says of a worker that it does not start."""
    worker_id = node.workers[name].id
    word = {"worker_id": worker_id, "state": "error", "pid": None, "error": TEXT}
    return {**word, "breaker": key, "restarts": 5}


async def breaker_events(world: World) -> list[tuple[str, str, str]]:
    rows = (await world.read.ask("/events"))["events"]
    return [
        (row["event_type"], row["severity"], row["title"])
        for row in rows
        if row["event_type"].startswith("breaker_")
    ]


@pytest.mark.spec("C50")
async def test_a_task_that_only_held_workers_serve_waits_with_that_reason(
    world: World,
) -> None:
    node = await world.node(declared("one", "detect"))
    task_id = await world.submit.submit("detect")
    await node.beat(held(node, "one"), breakers=[breaker()])
    waiting = (await world.read.task(task_id))["waiting"]
    assert waiting["reason"] == "breaker_open"
    assert waiting["message"].endswith(TEXT)
    worker = await world.read.ask(f"/workers/{node.workers['one'].id}")
    assert (worker["status"], worker["error"]) == ("error", TEXT)
    (shown,) = (await world.read.ask(f"/nodes/{node.id}"))["breakers"]
    assert shown == breaker()


async def test_a_task_goes_to_another_worker_while_one_is_held(world: World) -> None:
    node = await world.node(declared("one"), declared("two"))
    well = await node.workers["two"].start()
    await node.beat(held(node, "one"), well.word(), breakers=[breaker()])
    task_id = await world.submit.submit()
    assert well.take_one()["task_id"] == task_id


async def test_opening_and_closing_are_events_but_a_failed_probe_is_none(
    world: World,
) -> None:
    node = await world.node(declared("one"))
    word = held(node, "one")
    await node.beat(word)
    await node.beat(word, breakers=[breaker(error="no\u0000module")])
    ((kind, severity, title),) = await breaker_events(world)
    assert (kind, severity) == ("breaker_opened", "warning")
    assert title.startswith("host starts no my:Worker: breaker open: 5 failures")
    await node.beat(word, breakers=[breaker(state="half_open", next_probe_s=0.0)])
    await node.beat(word, breakers=[breaker()])
    assert len(await breaker_events(world)) == 1
    await node.beat(word)
    closed = next(e for e in await breaker_events(world) if "closed" in e[0])
    assert closed[:2] == ("breaker_closed", "info")


async def test_what_a_node_says_first_is_no_event(world: World) -> None:
    node = await world.node(declared("one"))
    await node.beat(held(node, "one"), breakers=[breaker()])
    assert await breaker_events(world) == []


async def generations(node: FakeNode) -> dict[str, int]:
    told = await node.caller.ask(f"/nodes/{node.id}/desired")
    return {row["name"]: row["generation"] for row in told["workers"]}


async def test_a_reset_asks_for_a_new_start_of_those_that_wait_and_no_others(
    world: World,
) -> None:
    node = await world.node(declared("a"), declared("b"), declared("c"))
    well = await node.workers["c"].start()
    words = (held(node, "a"), held(node, "b", "my:Other"), well.word())
    await node.beat(*words, breakers=[breaker(), breaker("my:Other")])
    path = f"/nodes/{node.id}/breakers/reset"
    told = await world.operate.tell(path, {"key": KEY})
    assert told == {
        "node_id": node.id,
        "reset": [KEY],
        "workers": [node.workers["a"].id],
    }
    assert await generations(node) == {"a": 1, "b": 0, "c": 0}
    told = await world.operate.tell(path, {})
    assert told["reset"] == ["my:Other", KEY]
    assert await generations(node) == {"a": 2, "b": 1, "c": 0}


async def test_a_reset_of_what_nobody_waits_for_is_refused(world: World) -> None:
    node = await world.node(declared("one"))
    path = f"/nodes/{node.id}/breakers/reset"
    fault(await world.operate.post(path, {"key": "my:Nothing"}), 404, "not_found")
    fault(await world.operate.post(path, {"kee": "x"}), 422, "invalid_field")
    nowhere = "/nodes/n-none/breakers/reset"
    fault(await world.operate.post(nowhere, {}), 404, "node_not_found")
    assert (await world.operate.tell(path, {}))["reset"] == []

"""Nodes whose clock or version is not the manager's."""

from __future__ import annotations

import pytest

from corral import __version__
from corral.core.nodes.clock_skew import KEPT
from tests.unit.api.world import FakeNode, World, declared, fault, outcome, said

AHEAD_S = 3600.0


async def tell_time(world: World, node: FakeNode, lead_s: float, beats: int) -> None:
    for _ in range(beats):
        world.clock.step(1)
        sent_at = world.clock.now().timestamp() + lead_s
        await node.beat(*(w.word() for w in node.workers.values()), clock=sent_at)


async def kinds(world: World) -> list[str]:
    events = (await world.read.ask("/events"))["events"]
    return [e["event_type"] for e in events if "clock" in e["event_type"]]


async def test_a_clock_that_is_off_is_shown_and_told_once_and_when_it_is_right(
    world: World,
) -> None:
    node = await world.node()
    path = f"/nodes/{node.id}"
    assert (await world.read.ask(path))["clock_skew_s"] is None
    await tell_time(world, node, AHEAD_S, 10)
    assert (await world.read.ask(path))["clock_skew_s"] == pytest.approx(AHEAD_S)
    assert await kinds(world) == ["clock_skew"]
    (event,) = (await world.read.ask("/events", limit=1))["events"]
    assert (event["severity"], event["source_node_id"]) == ("warning", node.id)
    assert "3600.0 s ahead" in event["title"]
    await tell_time(world, node, -0.2, KEPT)
    assert sorted(await kinds(world)) == ["clock_ok", "clock_skew"]
    assert (await world.read.ask(path))["clock_skew_s"] == pytest.approx(-0.2)


@pytest.mark.parametrize("lead_s", [AHEAD_S, -AHEAD_S])
async def test_times_of_a_node_with_a_wrong_clock_are_corrected(
    world: World, lead_s: float
) -> None:
    worker = await world.worker("echo")
    await tell_time(world, worker.node, lead_s, 3)
    task_id = await world.submit.submit()
    item = worker.take_one()
    theirs = world.clock.now().timestamp() + lead_s
    key = (item["task_id"], item["attempt"])
    line = [theirs, "stdout", "hello"]
    logs = [{"task_id": key[0], "attempt": key[1], "seq": 1, "lines": [line]}]
    said(await worker.report(started=[[*key, theirs]], logs=logs))
    assert (await world.read.task(task_id))["started_at"] == _iso(world)
    world.clock.step(2)
    ended = outcome(item, "ok", started_at=theirs, duration_s=2.0)
    said(await worker.report(outcomes=[ended]))
    task = await world.read.task(task_id)
    assert task["duration"] == pytest.approx(2.0)
    (shown,) = (await world.read.ask(f"/tasks/{task_id}/logs"))["lines"]
    assert shown["at"] == pytest.approx(theirs - lead_s)


def _iso(world: World) -> str:
    return world.clock.now().isoformat().replace("+00:00", "Z")


async def test_a_clock_that_cannot_be_is_left_out_of_account(world: World) -> None:
    node = await world.node()
    said(await node.try_beat(clock=None))
    assert (await world.read.ask(f"/nodes/{node.id}"))["clock_skew_s"] is None


# versions --------------------------------------------------------------------


def apart(minors: int) -> str:
    major, minor, *_ = __version__.split(".")
    return f"{major}.{int(minor) + minors}.0"


async def register(node: FakeNode, version: str) -> None:
    body = {"hostname": "host", "version": version, "workers": [declared("one")]}
    node.epoch = (await node.caller.tell(f"/nodes/{node.id}/register", body))["epoch"]


@pytest.mark.parametrize(("minors", "word"), [(1, "newer"), (0, None)])
async def test_a_node_one_minor_version_away_is_taken_and_shown(
    world: World, minors: int, word: str | None
) -> None:
    node = await world.node()
    await register(node, apart(minors))
    await register(node, apart(minors))
    shown = await world.read.ask(f"/nodes/{node.id}")
    assert (shown["version_skew"], shown["status"]) == (word, "online")
    events = (await world.read.ask("/events"))["events"]
    told = [e["event_type"] for e in events].count("version_skew")
    assert told == (1 if word else 0)


async def test_a_node_two_minor_versions_away_is_refused_with_both_and_the_fix(
    world: World,
) -> None:
    node = await world.node()
    body = {"hostname": "host", "version": apart(2)}
    answer = await node.caller.post(f"/nodes/{node.id}/register", body)
    error = fault(answer, 409, "version_refused")
    assert f"Corral {apart(2)} and the manager {__version__}" in error["message"]
    assert f"install {__version__}" in error["message"]
    assert node.epoch == 1, "what it had goes on"

"""Alerts of a manager on the twin of the store, with a clock that is stepped."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from corral.core.insight.event import EventQuery
from corral.manager.alerts.alerts import AlertConfig
from corral.store.base import Event
from tests.twins.store import MemoryStore
from tests.unit.api.world import (
    CONFIG,
    FakeNode,
    Json,
    StepClock,
    World,
    declared,
    fault,
    quiet,
    running,
)

SAMPLE = {
    "cpu_count": 8,
    "cpu_percent": 12.5,
    "memory_total_mb": 1000,
    "memory_used_mb": 250,
    "disk_total_gb": 100,
    "disk_used_gb": 10,
    "network_rx_bytes": 1,
    "network_tx_bytes": 2,
    "load_1m": 0.5,
    "load_5m": 0.4,
    "load_15m": 0.3,
}
BREAKER = {
    "key": "mine:B",
    "state": "open",
    "failures": 5,
    "window_s": 300.0,
    "age_s": 1.0,
    "next_probe_s": 59.0,
    "error": "it dies",
}
SHORT = replace(CONFIG, alerts=AlertConfig(after_s=10.0))


async def look(world: World, seconds: float = 0.0) -> Json:
    """Time passes, the manager looks; the cluster's health then."""
    world.clock.step(seconds)
    await world.manager.alerts.watch.step()
    return await world.read.ask("/cluster/health")


async def tell(node: FakeNode, disk: float = 10, **more: Any) -> None:
    words = [w.word() for w in node.workers.values() if w.incarnation]
    await node.beat(*words, sample={**SAMPLE, "disk_used_gb": disk}, gpus=[], **more)


async def events(world: World, *types: str) -> list[Event]:
    page = await world.store.events.event_page(EventQuery(event_types=types))
    return list(page.events)


def rules(health: Json) -> list[str]:
    return [reason["rule"] for reason in health["reasons"]]


@pytest.mark.spec("A7", "C47")
async def test_a_lost_node_is_an_alert_at_once_and_over_when_it_is_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await world.node(), await world.node()
    await tell(one)
    await tell(two)
    assert (await look(world))["status"] == "healthy"
    await world.step(15, one)
    await world.step(6, one)
    with caplog.at_level(logging.INFO, "corral.manager.alerts.alerts"):
        health = await look(world)
        assert (health["status"], rules(health)) == ("degraded", ["node_lost"])
        (reason,) = health["reasons"]
        assert (reason["subject"], reason["severity"]) == (two.id, "error")
        (alert,) = (await world.read.ask("/alerts"))["alerts"]
        assert alert["id"] == reason["alert_id"]
        assert (alert["node_id"], alert["resolved_at"]) == (two.id, None)
        await look(world, 5)
        assert len(await events(world, "alert")) == 1
        await tell(two)
        assert (await look(world))["status"] == "healthy"
    said = [r for r in caplog.records if r.name == "corral.manager.alerts.alerts"]
    assert [record.levelname for record in said] == ["ERROR", "INFO"]
    assert "host is lost" in said[0].getMessage()
    assert (await world.read.ask("/alerts"))["alerts"] == []
    (ended,) = (await world.read.ask("/alerts", state="all"))["alerts"]
    assert ended["resolved_at"] == "2026-01-01T00:00:26Z"
    (over,) = await events(world, "alert_resolved")
    assert over.data["alert"] == alert["id"]
    status = await world.read.ask("/cluster/status")
    assert status["health"] == "healthy"


async def test_the_last_node_lost_is_critical_and_that_is_told_once(
    world: World,
) -> None:
    one, two = await world.node(), await world.node()
    await world.step(15, one)
    await world.step(6, one)
    assert (await look(world))["status"] == "degraded"
    await world.step(21)
    health = await look(world)
    assert health["status"] == "critical"
    assert {r["severity"] for r in health["reasons"]} == {"critical"}
    (worse,) = await events(world, "alert_worsened")
    assert (worse.severity, worse.data["subject"]) == ("critical", two.id)
    rows = (await world.read.ask("/alerts"))["alerts"]
    assert {row["severity"] for row in rows} == {"critical"}
    assert len(rows) == 2
    await look(world, 1)
    assert len(await events(world, "alert_worsened")) == 1


async def test_a_full_disk_is_an_alert_when_it_lasts_and_does_not_flap() -> None:
    async with running(SHORT) as world:
        node = await world.node()
        told = []
        for disk in (91, 91, 91, 89, 91, 86, 85, 91):
            world.clock.step(6)
            await tell(node, disk)
            told.append((await look(world))["status"])
        assert told == ["healthy"] * 2 + ["degraded"] * 4 + ["healthy"] * 2
        (first,) = await events(world, "alert")
        assert first.data == {
            "rule": "node_disk",
            "subject": node.id,
            "value": 91.0,
            "limit": 90.0,
        }
        assert first.title == "host: disk 91 % in use, limit 90 %"
        world.clock.step(10)
        await tell(node, 96)
        assert (await look(world))["status"] == "critical"


async def test_an_alert_that_is_acknowledged_is_quiet_until_it_is_over() -> None:
    async with running(SHORT) as world:
        node = await world.node()
        await tell(node, 91)
        await look(world)
        await look(world, 10)
        (alert,) = (await world.read.ask("/alerts"))["alerts"]
        path = f"/alerts/{alert['id']}/acknowledge"
        seen = await world.operate.tell(path, {"note": "I empty it"})
        assert (seen["acknowledged_by"], seen["note"]) == ("operate", "I empty it")
        again = await world.admin.tell(path)
        assert (again["acknowledged_by"], again["note"]) == ("operate", "I empty it")
        await tell(node, 99)
        health = await look(world)
        assert health["status"] == "critical"
        assert health["reasons"][0]["is_acknowledged"]
        assert await events(world, "alert_worsened") == []
        assert len(await events(world, "alert_acknowledged")) == 1
        (row,) = (await world.read.ask("/alerts"))["alerts"]
        assert (row["severity"], row["value"]) == ("critical", 99.0)
        assert row["acknowledged_by"] == "operate"
        await tell(node, 10)
        await look(world)
        assert len(await events(world, "alert_resolved")) == 1
        fault(await world.operate.post(path), 409, "conflict")
    rows = [r.action for r in await world.store.inner.access.audit(50)]
    assert rows.count("alert.acknowledge") == 2


async def test_open_alerts_survive_a_restart_and_are_not_raised_twice() -> None:
    inner, clock = MemoryStore(), StepClock()
    async with running(SHORT, inner, clock) as world:
        node = await world.node()
        await tell(node, 91)
        await look(world)
        await look(world, 10)
        (alert,) = (await world.read.ask("/alerts"))["alerts"]
        await world.operate.tell(f"/alerts/{alert['id']}/acknowledge")
        key = node.caller.headers
    async with running(SHORT, inner, clock) as world:
        assert rules(await look(world)) == ["node_disk"]
        await look(world, 1)
        assert (await world.read.ask("/alerts"))["alerts"][0]["acknowledged_by"]
        node = FakeNode(world, node.id, world.nobody)
        node.caller.headers = key
        await node.register()
        await tell(node, 91)
        assert rules(await look(world)) == ["node_disk"]
        assert len(await events(world, "alert")) == 1
        await tell(node, 10)
        assert rules(await look(world)) == []
        assert (await world.read.ask("/alerts"))["total"] == 0


@pytest.mark.spec("C43")
async def test_many_failed_tasks_are_an_alert() -> None:
    async with running(SHORT) as world:
        worker = await world.worker("echo")
        await tell(worker.node)
        for number in range(20):
            await world.submit.submit()
            await quiet()
            (item,) = worker.take()
            await (worker.fail(item) if number % 4 == 0 else worker.finish(item))
        assert rules(await look(world)) == []
        health = await look(world, 10)
        assert rules(health) == ["error_rate"]
        assert (health["reasons"][0]["value"], health["status"]) == (0.25, "degraded")
        assert rules(await look(world, 200)) == ["error_rate"]
        assert rules(await look(world, 200)) == []


@pytest.mark.spec("C39")
async def test_tasks_nobody_can_run_and_too_many_of_them_are_alerts() -> None:
    limits = replace(SHORT.alerts.limits, queue_depth=3)
    config = replace(SHORT, alerts=replace(SHORT.alerts, limits=limits))
    async with running(config) as world:
        await world.operate.tell("/job-types", {"name": "resize"})
        for _ in range(3):
            await world.submit.submit("resize")
        await look(world)
        health = await look(world, 10)
        assert rules(health) == ["unserved", "queue_depth"]
        assert health["reasons"][0]["subject"] == "resize"
        worker = await world.worker("resize")
        await tell(worker.node)
        assert rules(await look(world)) == []


async def test_cards_workers_and_breakers_are_judged() -> None:
    async with running(SHORT) as world:
        node = await world.node(declared("one", "echo"))
        worker = await node.workers["one"].start()
        plain = {"id": "GPU-1", "vendor": "nvidia", "name": "H200"}
        gpus = [{**plain, "temperature_c": 99.0, "error": "it hangs"}]
        word = worker.word(state="error", error="no such module")
        at = world.clock.now().timestamp()
        off = {"clock": at + 60.0, "breakers": [BREAKER]}
        await node.beat(word, sample=SAMPLE, gpus=gpus, **off)
        assert rules(await look(world)) == ["breaker_open", "gpu_failed"]
        health = await look(world, 10)
        assert rules(health) == [
            "gpu_temperature",
            "breaker_open",
            "gpu_failed",
            "clock_skew",
            "worker_error",
        ]
        assert "no such module" in health["reasons"][4]["title"]
        assert health["reasons"][1]["subject"] == f"{node.id}/mine:B"
        assert health["reasons"][3]["value"] == 60.0


@pytest.mark.spec("C47")
async def test_most_nodes_silent_together_are_one_alert(world: World) -> None:
    nodes = [await world.node() for _ in range(5)]
    await world.step(15, nodes[0])
    await world.step(6, nodes[0])
    health = await look(world)
    assert (health["status"], rules(health)) == ("critical", ["mass_loss"])
    await look(world, 3)
    assert len(await events(world, "alert")) == 1
    await world.step(1, *nodes)
    assert (await look(world))["status"] == "healthy"


async def test_alerts_of_a_node_that_is_no_more_are_over() -> None:
    async with running(SHORT) as world:
        node = await world.node()
        await tell(node, 91)
        await look(world)
        assert rules(await look(world, 10)) == ["node_disk"]
        del world.manager.ctx.cluster.nodes[node.id]
        assert rules(await look(world)) == []


@pytest.mark.spec("D20")
async def test_stores_that_do_not_answer_make_the_cluster_critical(
    world: World,
) -> None:
    world.engine.is_down = True
    await world.manager.upkeep.rescue.step()
    health = await look(world)
    assert (health["status"], rules(health)) == ("critical", ["engine_down"])
    world.store.is_down = True
    health = await look(world)
    assert rules(health) == ["engine_down", "store_down"]
    world.store.is_down = world.engine.is_down = False
    await world.manager.upkeep.rescue.step()
    assert (await look(world))["status"] == "healthy"
    assert len(await events(world, "alert", "alert_resolved")) == 2


@pytest.mark.parametrize("lost", ["add_events", "resolve_alerts", "alerts"])
async def test_an_answer_of_the_store_that_is_lost_raises_nothing_twice(
    world: World, lost: str
) -> None:
    await world.node()
    await look(world)
    await world.step(21)
    world.store.loses_answer(lost)
    with pytest.raises(Exception, match="lost on its way"):
        await world.manager.alerts.watch.step()
    health = await look(world)
    assert rules(health) == ["node_lost"]
    assert health["reasons"][0]["alert_id"] is not None
    assert len(await events(world, "alert")) == 1


async def test_two_open_alerts_of_one_subject_become_one(world: World) -> None:
    data = {"rule": "node_lost", "subject": "n9"}
    twice = Event("alert", "n9 is lost", "error", "n9", data=data)
    await world.store.events.add_events([twice, twice])
    async with running(CONFIG, world.store.inner, world.clock) as other:
        await look(other)
        assert (await other.read.ask("/alerts"))["total"] == 0
        assert len(await events(other, "alert_resolved")) == 1


async def test_who_follows_events_is_woken_by_them(world: World) -> None:
    node = await world.node()
    page = await world.read.ask("/events")
    assert page["next"] == page["events"][-1]["seq"]
    path = f"/events?after={page['next']}&wait=30"
    everything = asyncio.create_task(world.read.ask(path))
    alerts = asyncio.create_task(world.read.ask(f"{path}&severity=error&type=alert"))
    await quiet()
    assert not everything.done()
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit()
    (first,) = (await everything)["events"]
    assert first["task_ids"] == [task_id]
    assert not alerts.done()
    await world.step(21)
    await look(world)
    (alert,) = (await alerts)["events"]
    assert (alert["event_type"], alert["source_node_id"]) == ("alert", node.id)
    assert alert["resolved_at"] is None
    assert (await world.read.ask("/events", node_id="n0"))["events"] == []


async def test_who_follows_events_is_let_go_when_the_manager_stops(
    world: World,
) -> None:
    poll = asyncio.create_task(world.read.ask("/events?wait=60&type=nothing"))
    await quiet()
    world.manager.release()
    assert (await poll)["events"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/alerts?state=closed",
        "/alerts?severity=bad",
        "/alerts?limit=0",
        "/events?severity=bad",
        "/events?type=No%20Type",
        "/events?node_id=a%20b",
        "/events?wait=61",
        "/events?wait=-1",
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    world: World, path: str
) -> None:
    fault(await world.read.get(path), 422, "invalid_field")


async def test_only_an_alert_can_be_acknowledged(world: World) -> None:
    await world.node()
    fault(await world.operate.post("/alerts/1/acknowledge"), 404, "not_found")
    fault(await world.operate.post("/alerts/999/acknowledge"), 404, "not_found")
    for name in ("x", "-1", "²", str(1 << 63), "9" * 5000):
        path = f"/alerts/{name}/acknowledge"
        fault(await world.operate.post(path), 404, "not_found")
    path = "/alerts/1/acknowledge"
    for body in ({"word": "x"}, {"note": 7}, {"note": "x" * 256}, {"note": "a\x00"}):
        fault(await world.operate.post(path, body), 422, "invalid_field")


async def test_the_rules_are_told_with_their_limits(world: World) -> None:
    rows = (await world.read.ask("/cluster/health"))["rules"]
    by_name = {row["rule"]: row for row in rows}
    assert by_name["node_disk"]["limit"] == 90.0
    assert by_name["node_disk"]["worst"] == "critical"
    assert by_name["node_lost"]["at_once"]
    assert by_name["unserved"]["limit"] is None

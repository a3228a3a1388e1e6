"""Webhooks of alerts over real sockets: signed, in order, and tried until they know."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from corral.manager.alerts.alerts import AlertConfig
from corral.manager.outbound.address import GatewayConfig
from tests.twins.store import MemoryStore
from tests.unit.api.world import CONFIG, FakeNode, StepClock, World, running
from tests.unit.client.stand_in import DROP, Answer, Seen, StandIn, serve
from tests.unit.manager.alerts.test_alerts import events, look, tell
from tests.unit.manager.outbound.test_task_webhooks import until

HOOK = "POST /hook"


@pytest.fixture
def receiver() -> Iterator[StandIn]:
    with serve() as made:
        made.on(HOOK, "thanks")
        yield made


@asynccontextmanager
async def telling(
    *urls: str,
    inner: MemoryStore | None = None,
    clock: StepClock | None = None,
    gateway: GatewayConfig | None = None,
) -> AsyncIterator[World]:
    alerts = AlertConfig(after_s=0.0, webhooks=urls)
    config = replace(CONFIG, alerts=alerts, gateway=gateway or CONFIG.gateway)
    async with running(config, inner, clock) as world:
        yield world


async def deliver(world: World, seconds: float = 0.0) -> None:
    await look(world, seconds)
    world.manager.alerts.notices.outbox.begin()
    await world.manager.alerts.notices.outbox.settled()


async def fill(world: World, node: FakeNode, disk: float) -> None:
    await tell(node, disk)
    await deliver(world)


def is_longer(rows: list[Seen], than: int) -> bool:
    return len(rows) > than


def words(receiver: StandIn) -> list[str]:
    return [f"{c.json['event']} {c.json['alert']['severity']}" for c in receiver.seen]


@pytest.mark.spec("D20")
async def test_alerts_are_told_signed_when_raised_worse_and_over(
    receiver: StandIn,
) -> None:
    async with telling(f"{receiver.url}/hook?token=x") as world:
        node = await world.node()
        await fill(world, node, 50)
        assert receiver.seen == []
        await fill(world, node, 91)
        await fill(world, node, 92)
        await fill(world, node, 97)
        await fill(world, node, 20)
        secret = (await world.admin.ask("/cluster/webhook-secret"))["secret"]
        (alert,) = (await world.read.ask("/alerts", state="all"))["alerts"]
    first, worse, over = receiver.seen
    for call in receiver.seen:
        mine = hmac.new(secret.encode(), call.body, hashlib.sha256).hexdigest()
        assert call.headers["x-corral-signature"] == f"sha256={mine}"
        assert call.headers["x-corral-event"] == call.json["event"]
        assert call.query == {"token": "x"}
        assert call.json["alert"]["id"] == alert["id"]
        assert call.json["alert"]["subject"] == node.id
        assert call.json["alert"]["raised_at"][:19] == alert["raised_at"][:19]
    assert words(receiver) == [
        "alert_raised warning",
        "alert_raised critical",
        "alert_resolved critical",
    ]
    assert (first.json["alert"]["value"], worse.json["alert"]["value"]) == (91, 97)
    assert first.json["alert"]["limit"] == 90
    assert over.json["alert"]["resolved_at"] is not None
    assert over.json["alert"]["title"] == worse.json["alert"]["title"]
    assert len({call.headers["x-corral-delivery"] for call in receiver.seen}) == 3


async def test_a_receiver_that_fails_is_told_again_and_in_order(
    receiver: StandIn,
) -> None:
    receiver.on(HOOK, Answer({}, 500), DROP, "thanks")
    with serve() as other:
        other.on(HOOK, "thanks")
        async with telling(f"{receiver.url}/hook", f"{other.url}/hook") as world:
            node = await world.node()
            await fill(world, node, 91)
            await fill(world, node, 20)
            assert words(receiver) == ["alert_raised warning"]
            assert len(other.seen) == 2
            for _ in range(6):
                await tell(node, 20)
                await deliver(world, 7)
    assert words(receiver) == ["alert_raised warning"] * 3 + ["alert_resolved warning"]
    assert [c.headers["x-corral-try"] for c in receiver.seen] == list("1231")
    assert len({c.headers["x-corral-delivery"] for c in receiver.seen}) == 2
    assert len(other.seen) == 2


async def test_a_receiver_that_hangs_keeps_no_other_from_the_next_alert(
    receiver: StandIn,
) -> None:
    gate = threading.Event()

    def slow(seen: Seen) -> Answer:
        gate.wait(30)
        return Answer({})

    with serve() as lame:
        lame.on(HOOK, slow)
        async with telling(f"{lame.url}/hook", f"{receiver.url}/hook") as world:
            node = await world.node()
            for disk in (91, 20):
                before = len(receiver.seen)
                await tell(node, disk)
                await look(world)
                world.manager.alerts.notices.outbox.begin()
                await until(partial(is_longer, receiver.seen, before))
            assert len(lame.seen) == 1
            gate.set()
            await world.manager.alerts.notices.outbox.settled()
        assert words(lame) == words(receiver)


async def test_a_store_that_is_away_for_a_moment_costs_a_moment(
    receiver: StandIn,
) -> None:
    async with telling(f"{receiver.url}/hook") as world:
        outbox = world.manager.alerts.notices.outbox
        # Its loops would look by themselves, before the store is away.
        await world.manager.halt()
        await outbox.settled()
        await tell(await world.node(), 91)
        await look(world)
        world.store.is_down = True
        outbox.begin()
        await outbox.settled()
        world.store.is_down = False
        assert receiver.seen == []
        world.clock.step(6)
        outbox.begin()
        await outbox.settled()
        assert words(receiver) == ["alert_raised warning"]
        assert receiver.seen[0].headers["x-corral-try"] == "1"


async def test_what_a_manager_could_not_tell_is_told_by_the_next(
    receiver: StandIn,
) -> None:
    inner, clock, url = MemoryStore(), StepClock(), f"{receiver.url}/hook"
    receiver.on(HOOK, Answer({}, 503))
    async with telling(url, inner=inner, clock=clock) as world:
        node = await world.node()
        await fill(world, node, 91)
        assert len(receiver.seen) == 1
    receiver.seen.clear()
    receiver.on(HOOK, "thanks")
    async with telling(url, inner=inner, clock=clock) as world:
        await deliver(world)
        await deliver(world)
        assert words(receiver) == ["alert_raised warning"]
    async with telling(url, inner=inner, clock=clock) as world:
        await deliver(world)
        assert len(receiver.seen) == 1


async def test_a_new_receiver_is_told_of_what_comes_and_not_of_the_past(
    receiver: StandIn,
) -> None:
    inner, clock = MemoryStore(), StepClock()
    async with telling(inner=inner, clock=clock) as world:
        await fill(world, await world.node(), 91)
    async with telling(f"{receiver.url}/hook", inner=inner, clock=clock) as world:
        await deliver(world)
        assert receiver.seen == []
        await world.step(21)
        await deliver(world)
        told = [call.json["alert"]["rule"] for call in receiver.seen]
        assert told == ["node_lost"]


async def test_a_receiver_that_never_answers_is_given_up_and_the_next_is_told(
    receiver: StandIn,
) -> None:
    receiver.on(HOOK, Answer({}, 500))
    async with telling(f"{receiver.url}/hook?token=secret") as world:
        node = await world.node()
        await fill(world, node, 91)
        failed = await events(world, "webhook_failed")
        for _ in range(40):
            if failed:
                break
            await deliver(world, 3600)
            failed = await events(world, "webhook_failed")
        assert 20 < (world.clock.now() - StepClock().now()).total_seconds() / 3600 < 26
        assert "secret" not in json.dumps(dict(failed[0].data)) + failed[0].title
        receiver.on(HOOK, "thanks")
        receiver.seen.clear()
        await fill(world, node, 10)
        await deliver(world, 3600)
        assert {call.json["alert"]["rule"] for call in receiver.seen} >= {"node_disk"}
        assert "alert_raised warning" not in words(receiver)


async def test_a_receiver_that_is_gone_for_good_is_asked_once(
    receiver: StandIn,
) -> None:
    receiver.on(HOOK, Answer({}, 410))
    async with telling(f"{receiver.url}/hook") as world:
        await fill(world, await world.node(), 91)
        await deliver(world, 3600)
        assert len(receiver.seen) == 1
        assert len(await events(world, "webhook_failed")) == 1


async def test_an_administrators_receiver_needs_no_list_but_is_none_of_our_servers(
    receiver: StandIn,
) -> None:
    port = int(receiver.url.rpartition(":")[2])
    exposed = GatewayConfig(is_exposed=True)
    url = f"{receiver.url}/hook"
    async with telling(url, gateway=exposed) as world:
        await fill(world, await world.node(), 91)
        assert len(receiver.seen) == 1
    own = GatewayConfig(own=(("127.0.0.1", port),))
    for target in (url, "http://169.254.169.254/latest"):
        async with telling(target, gateway=own) as world:
            await fill(world, await world.node(), 91)
    assert len(receiver.seen) == 1

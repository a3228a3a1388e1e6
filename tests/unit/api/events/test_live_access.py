"""Who may listen to events: by key or ticket, from which page, and how many."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from corral.core.access.key import Scope
from corral.manager.events.listener import LiveConfig
from tests.unit.api.hanging import Listener
from tests.unit.api.listening import Socket
from tests.unit.api.world import CONFIG, World, fault, quiet, running


async def test_a_ticket_is_good_once_and_for_a_moment(world: World) -> None:
    made = await world.read.post("/events/ticket")
    assert made.status_code == 201
    ticket = made.json()["ticket"]
    own = world.read.headers["Authorization"]
    assert ticket not in own
    socket = Socket(world, f"ticket={ticket}", key="", origin="http://corral")
    assert (await socket.opened())["event"] == "hello"
    assert (await Socket(world, f"ticket={ticket}", key="").word())["code"] == 4401
    late = (await world.read.tell("/events/ticket"))["ticket"]
    world.clock.step(31)
    answer = await world.nobody.get("/events/stream", ticket=late)
    fault(answer, 401, "unauthenticated")


async def test_a_ticket_dies_with_its_key(world: World) -> None:
    key, text = await world.manager.access.keys.create(Scope.READ, "short")
    who = type(world.read)(world.http, text)
    ticket = (await who.tell("/events/ticket"))["ticket"]
    socket = Socket(world, key=f"Bearer {text}")
    await socket.opened()
    await world.manager.access.keys.revoke(key.id)
    assert (await Socket(world, f"ticket={ticket}", key="").word())["code"] == 4401
    await world.manager.events.cluster_events.step()
    assert (await socket.word())["code"] == 1008


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://corral.x"])
async def test_a_page_of_another_origin_may_not_listen(
    world: World, origin: str
) -> None:
    assert (await Socket(world, origin=origin).word())["code"] == 4403
    listener = Listener(world.app, "/events/stream", world.read)
    await quiet()
    assert listener.status == 200
    await listener.hang_up()


async def test_origins_that_are_named_may_listen() -> None:
    config = replace(CONFIG, live=LiveConfig(origins=("https://board.example",)))
    async with running(config) as world:
        for origin in ("https://board.example", "http://corral"):
            assert (await Socket(world, origin=origin).opened())["event"] == "hello"


async def test_without_keys_a_name_that_was_made_to_lead_here_is_refused() -> None:
    async with running(replace(CONFIG, is_open=True)) as world:
        evil = Socket(world, key="", host="evil.example", origin="http://evil.example")
        assert (await evil.word())["code"] == 4403
        own = Socket(world, key="", host="localhost:1", origin="http://localhost:1")
        assert (await own.opened())["event"] == "hello"


async def test_so_many_may_listen_in_all_and_from_one_address() -> None:
    config = replace(CONFIG, live=LiveConfig(listeners=4, per_client=2))
    async with running(config) as world:
        far = [Socket(world, ip="10.0.0.1") for _ in range(2)]
        for socket in far:
            await socket.opened()
        assert (await Socket(world, ip="10.0.0.1").word())["code"] == 4429
        other = Socket(world, ip="10.0.0.1", key=world.admin.headers["Authorization"])
        await other.opened()
        near = Socket(world)
        await near.opened()
        answer = await world.read.get("/events/stream")
        assert "CORRAL_EVENT_LISTENERS" in fault(answer, 429, "rate_limited")["message"]
        await far[0].hang_up()
        await Socket(world).opened()


@pytest.mark.parametrize(
    "query",
    ["detail=some", "type=A", "after=x", "after=-1", "label=x", "task_id="],
)
async def test_what_means_nothing_is_refused(world: World, query: str) -> None:
    assert (await Socket(world, query).word())["code"] == 4422
    for path in ("/events/stream", "/events/live"):
        answer = await world.read.get(f"{path}?{query}")
        fault(answer, 422, "invalid_field")


async def test_the_manager_lets_everybody_go_when_it_stops(world: World) -> None:
    socket = Socket(world)
    await socket.opened()
    listener = Listener(world.app, "/events/stream", world.read)
    poll = asyncio.create_task(world.read.ask("/events/live", wait=60))
    await quiet()
    world.manager.release()
    assert (await socket.word())["code"] == 1012
    await listener.ended()
    assert (await asyncio.wait_for(poll, 60))["events"] == []

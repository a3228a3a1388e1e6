"""Events as they happen: by WebSocket, as a stream and in pages."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from corral.core.insight.event import Event
from corral.manager.events.listener import LiveConfig
from tests.unit.api.hanging import Listener
from tests.unit.api.listening import Socket, heard, names
from tests.unit.api.world import CONFIG, World, outcome, quiet, running


async def test_the_life_of_a_task_is_told_in_the_documented_shape(world: World) -> None:
    worker = await world.worker("echo")
    socket = Socket(world)
    hello = await socket.opened()
    assert hello["event"] == "hello"
    task_id = await world.submit.submit()
    item = worker.take_one()
    await worker.begin(item)
    await worker.finish(item, {"x": 1})
    told = [e for e in await socket.until("task_completed") if "task" in e["event"]]
    assert names(told) == [
        "task_submitted",
        "task_assigned",
        "task_started",
        "task_completed",
    ]
    assert all(set(e) == {"event", "timestamp", "seq", "data"} for e in told)
    assert [e["seq"] for e in told] == sorted(e["seq"] for e in told)
    assert told[0]["seq"] > hello["seq"]
    assert told[-1]["data"] | {"duration": 0} == {
        "task_id": task_id,
        "task_type": "echo",
        "status": "completed",
        "attempt": 1,
        "worker_id": worker.id,
        "node_id": worker.node.id,
        "duration": 0,
    }
    await socket.hang_up()
    assert not world.manager.events.broadcast.listeners


async def test_failure_retry_cancel_and_requeue_are_told(world: World) -> None:
    worker = await world.worker("echo")
    socket = Socket(world, "type=task_failed,task_retried,task_cancelled,task_requeued")
    await socket.opened()
    lost = await world.submit.submit()
    item = worker.take_one()
    error = {"kind": "worker_died", "message": "killed"}
    await worker.report(outcomes=[outcome(item, kind="lost", error=error)])
    again = await socket.hear()
    assert (again["event"], again["data"]["status"]) == ("task_retried", "queued")
    await world.step(2, worker.node)
    await worker.fail(worker.take_one(), "it broke")
    failed = await socket.hear()
    assert failed["data"]["error"] == {"kind": "exception", "message": "it broke"}
    assert (failed["data"]["task_id"], failed["data"]["attempt"]) == (lost, 2)
    await world.submit.tell(f"/tasks/{lost}/requeue")
    assert (await socket.hear())["event"] == "task_requeued"
    other = await world.submit.submit()
    await world.submit.tell(f"/tasks/{other}/cancel")
    cancelled = await socket.hear()
    assert cancelled["event"] == "task_cancelled"
    assert cancelled["data"]["task_id"] == other


@pytest.mark.spec("C45")
async def test_workers_nodes_and_progress_are_told(world: World) -> None:
    live = world.manager.events
    socket = Socket(world)
    await socket.opened()
    worker = await world.worker("echo")
    await live.cluster_events.step()
    joined = await socket.until("node_status_changed")
    assert "node_joined" in names(joined)
    (status,) = [e for e in joined if e["event"] == "worker_status_changed"]
    assert status["data"]["worker_id"] == worker.id
    assert (status["data"]["status"], status["data"]["old_status"]) == ("online", None)
    await world.submit.submit()
    item = worker.take_one()
    await worker.begin(item)
    await worker.report(progress=[[item["task_id"], item["attempt"], 0.5, "half"]])
    await live.cluster_events.step()
    (*_, progress) = await socket.until("task_progress")
    assert progress["data"]["progress"] == {"fraction": 0.5, "message": "half"}
    world.clock.step(30)
    await world.manager.nodes.watch.step()
    await live.cluster_events.step()
    lost = await socket.until("node_status_changed")
    assert "node_lost" in names(lost)
    assert lost[-1]["data"]["status"] == "offline"


async def test_models_that_come_and_go_are_told(world: World) -> None:
    worker = await world.worker("echo")
    socket = Socket(world, "type=model_loaded,model_unloaded")
    await socket.opened()
    held = {"name": "tiny", "size_mb": 10.0, "load_s": 1.0, "loaded_at": 1.0}
    for number, models in enumerate(([held], []), 1):
        told = {"number": number, "held": models, "sizes": {}}
        await worker.report(models=told)
        await world.manager.events.cluster_events.step()
    events = [await socket.hear(), await socket.hear()]
    assert names(events) == ["model_loaded", "model_unloaded"]
    assert all(e["data"]["model_name"] == "tiny" for e in events)
    assert all(e["data"]["worker_id"] == worker.id for e in events)


async def test_figures_are_told_when_they_change(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    socket = Socket(world, "type=cluster_summary")
    await socket.opened()
    await world.submit.submit()
    for _ in range(3):
        world.clock.step(1)
        await world.manager.events.cluster_events.step()
    await world.submit.submit()
    world.clock.step(1)
    await world.manager.events.cluster_events.step()
    told = [(await socket.hear())["data"] for _ in range(2)]
    assert [data["queued_tasks"] for data in told] == [1, 2]


async def test_trouble_of_a_gpu_is_told_under_the_documented_name(world: World) -> None:
    socket = Socket(world, "type=gpu_alert,cluster_rebalance_started")
    await socket.opened()
    row = Event("alert", "hot", "warning", "n1", data={"rule": "gpu_temperature"})
    start = Event("cluster_rebalance_started", "moving", data={"rebalance_id": "r"})
    await world.manager.ctx.record([row, start, replace(row, data={"rule": "x"})])
    alert, moving = await socket.hear(), await socket.hear()
    assert (alert["event"], alert["data"]["severity"]) == ("gpu_alert", "warning")
    assert moving["data"]["rebalance_id"] == "r"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("task_type=echo", ["a", "c"]),
        ("task_type=other", ["b"]),
        ("label=team:x", ["a"]),
        ("task_id=b", ["b"]),
        ("type=task_completed", []),
        ("worker_id=nobody", []),
    ],
)
async def test_a_filter_lets_through_what_it_names(
    world: World, query: str, wanted: list[str]
) -> None:
    for kind in ("echo", "other"):
        await world.operate.tell("/job-types", {"name": kind})
    socket = Socket(world, query)
    await socket.opened()
    await world.submit.submit("echo", task_id="a", labels={"team": "x", "y": "z"})
    await world.submit.submit("other", task_id="b")
    await world.submit.submit("echo", task_id="c", labels={"team": "y"})
    world.manager.events.broadcast.flush()
    await quiet()
    told = [json.loads(m["text"]) for m in list(socket._down._queue)]  # type: ignore[attr-defined]
    assert [e["data"]["task_id"] for e in told] == wanted


async def test_many_changes_are_one_event_for_those_who_want_a_summary(
    world: World,
) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    socket = Socket(world, "detail=summary&type=tasks_changed")
    await socket.opened()
    tasks = [{"task_type": "echo"} for _ in range(300)]
    await world.submit.tell("/tasks/batch", {"tasks": tasks})
    data = (await socket.hear())["data"]
    assert (data["count"], data["events"]) == (300, {"task_submitted": 300})
    assert data["by_type"] == {"echo": {"task_submitted": 300}}
    assert (len(data["tasks"]), data["more"]) == (100, 200)


async def test_events_of_a_moment_share_a_frame_that_is_made_once(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    sockets = [Socket(world, "batch=true&type=task_submitted") for _ in range(3)]
    for socket in sockets:
        await socket.opened()
    tasks = [{"task_type": "echo"} for _ in range(5)]
    await world.submit.tell("/tasks/batch", {"tasks": tasks})
    words = [await socket.word() for socket in sockets]
    frame = json.loads(words[0]["text"])
    assert (frame["event"], len(frame["data"])) == ("batch", 5)
    assert frame["seq"] == frame["data"][-1]["seq"]
    assert len({id(word["text"]) for word in words}) == 1


async def test_a_reader_goes_on_where_it_was(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    socket = Socket(world)
    await socket.opened()
    for name in ("a", "b"):
        await world.submit.submit(task_id=name)
    seen = await socket.until("task_submitted")
    await socket.hang_up()
    await world.submit.submit(task_id="c")
    again = Socket(world, f"after={seen[-1]['seq']}&type=task_submitted")
    hello = await again.opened()
    assert (hello["event"], hello["seq"]) == ("hello", seen[-1]["seq"])
    assert [(await again.hear())["data"]["task_id"] for _ in "bc"] == ["b", "c"]


async def test_one_who_missed_too_much_is_told_to_load_anew() -> None:
    config = replace(CONFIG, live=LiveConfig(events=10))
    async with running(config) as world:
        await world.operate.tell("/job-types", {"name": "echo"})
        socket = Socket(world)
        hello = await socket.opened()
        for _ in range(20):
            await world.submit.submit()
            world.manager.events.broadcast.flush()
        for after in (hello["seq"], 0, hello["seq"] + 10**9):
            told = await Socket(world, f"after={after}").opened()
            assert (told["event"], told["data"]["epoch"]) == (
                "reset",
                hello["data"]["epoch"],
            )
            assert told["seq"] == world.manager.events.broadcast._ring.last


async def test_numbers_of_a_former_manager_are_known_for_what_they_are() -> None:
    async with running() as world:
        seq = (await Socket(world).opened())["seq"]
        clock = world.clock
    clock.step(1)
    async with running(clock=clock) as world:
        told = await Socket(world, f"after={seq + 5}").opened()
        assert told["event"] == "reset"
        assert told["data"]["epoch"] > seq


async def test_nothing_is_kept_while_nobody_listens(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    live = world.manager.events
    await world.submit.submit()
    assert not live.broadcast.is_awake
    assert not list(live.broadcast._ring.since(0))
    socket = Socket(world)
    hello = await socket.opened()
    await socket.hang_up()
    await live.cluster_events.step()
    assert live.broadcast.is_awake, "it may come again"
    world.clock.step(61)
    await live.cluster_events.step()
    assert not live.broadcast.is_awake
    assert (await Socket(world, f"after={hello['seq']}").opened())["event"] == "reset"


async def test_the_stream_tells_the_same_and_goes_on_by_the_last_id(
    world: World,
) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    listener = Listener(world.app, "/events/stream", world.read)
    await quiet()
    await world.submit.submit(task_id="a")
    told = await heard(listener, "task_submitted")
    assert listener.headers["content-type"].startswith("text/event-stream")
    assert names(told) == ["hello", "task_submitted"]
    assert f"id: {told[-1]['seq']}\n".encode() in listener.body
    await world.submit.submit(task_id="b")
    who = type(world.read)(world.http, None)
    who.headers = {**world.read.headers, "Last-Event-ID": str(told[-1]["seq"])}
    again = Listener(world.app, "/events/stream", who, query="type=task_submitted")
    assert (await heard(again, "task_submitted"))[1]["data"]["task_id"] == "b"
    for one in (listener, again):
        await one.hang_up()
    assert not world.manager.events.broadcast.listeners


async def test_pages_are_waited_for_and_follow_each_other(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    first = await world.read.ask("/events/live")
    assert first["events"] == []
    path, query = "/events/live", {"after": first["next"], "type": "task_submitted"}
    poll = asyncio.create_task(world.read.ask(path, wait=60, **query))
    await quiet()
    assert not poll.done()
    await world.submit.submit(task_id="a")
    told = await asyncio.wait_for(poll, 60)
    assert [e["data"]["task_id"] for e in told["events"]] == ["a"]
    assert (await world.read.ask(path, after=told["next"]))["events"] == []
    assert names((await world.read.ask(path, after=1))["events"]) == ["reset"]

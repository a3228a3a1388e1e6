"""One declaration, two typed faces. mypy checks the assert_type lines."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from corral.client import (
    AsyncClient,
    Client,
    ClusterStatus,
    LogLine,
    Submitted,
    TaskDetail,
    TaskInfo,
    WorkerInfo,
)
from corral.client.client import Calls
from corral.client.http.endpoint import poll
from corral.wire.tasks import Progress
from tests.unit.client.stand_in import StandIn, submitted, task_out


def test_client_returns_the_typed_value_itself(manager: StandIn) -> None:
    manager.on("POST /tasks", submitted())
    manager.on("GET /tasks/t1", task_out())
    with Client(manager.url, "") as client:
        handed = client.submit("echo", {"message": "hi"}, priority="high")
        assert_type(handed, Submitted)
        detail = client.wait(handed, timeout=5)
        assert_type(detail, TaskDetail)
        assert (handed.task_id, detail.result) == ("t1", {"echoed": "hi"})


async def test_async_client_returns_an_awaitable_of_the_same_value(
    manager: StandIn,
) -> None:
    manager.on("POST /tasks", submitted())
    manager.on("GET /tasks/t1", task_out())
    async with AsyncClient(manager.url, "") as client:
        pending = client.submit("echo", {"message": "hi"}, priority="high")
        assert inspect.isawaitable(pending)
        handed = await pending
        assert_type(handed, Submitted)
        detail = await client.wait(handed, timeout=5)
        assert_type(detail, TaskDetail)
        assert (handed.task_id, detail.result) == ("t1", {"echoed": "hi"})


async def test_streams_are_iterators_here_and_async_iterators_there(
    manager: StandIn,
) -> None:
    page = {"tasks": [task_out("a")], "next_cursor": "c"}
    last = {"tasks": [task_out("b")], "next_cursor": None}
    manager.on("GET /tasks", page, last, page, last)
    with Client(manager.url, "") as client:
        some = client.list_tasks()
        assert_type(some, Iterator[TaskInfo])
        assert [task.task_id for task in some] == ["a", "b"]
    async with AsyncClient(manager.url, "") as aclient:
        others = aclient.list_tasks()
        assert_type(others, AsyncIterator[TaskInfo])
        assert [task.task_id async for task in others] == ["a", "b"]


async def test_every_call_is_on_both_clients() -> None:
    names = [name for name in vars(Calls) if not name.startswith("_")]
    assert len(names) >= 24
    with Client("http://127.0.0.1:1", "") as client:
        assert all(callable(getattr(client, name)) for name in names)
    async with AsyncClient("http://127.0.0.1:1", "") as aclient:
        assert all(callable(getattr(aclient, name)) for name in names)


def _types_a_checker_sees(client: Client) -> None:
    """Never called: only read by mypy."""
    assert_type(client.cluster_status(), ClusterStatus)
    assert_type(client.workers(), list[WorkerInfo])
    assert_type(client.submit_many([("echo", 1)]), list[str])
    assert_type(client.wait_many(["a"]), list[TaskInfo])
    assert_type(client.run("echo"), Any)
    assert_type(client.logs("a"), Iterator[LogLine])
    assert_type(client.follow("a"), Iterator[LogLine | Progress])
    assert_type(client.drain(), int)
    client.submit("echo", priorty=3)  # type: ignore[call-arg]
    client.submit(3)  # type: ignore[arg-type]


def test_a_poll_is_never_held_back_longer_than_there_is_time() -> None:
    assert list(poll(0.0)) == [0.0], "once at least: it may be over already"
    first, *rest = poll(0.01, longest_s=0.002)
    assert first == 0.002
    assert all(each <= 0.002 for each in rest)
    tries = poll()
    assert [next(tries) for _ in range(3)] == [25.0, 25.0, 25.0], "without end"

"""Events of a real cluster: heard by a browser's means, by the client, on the terminal,
and through the death of the manager."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.acceptance.cluster import CORRAL, Cluster, until

Json = dict[str, Any]


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """Whoever killed its manager before: it answers, and its worker is there."""
    shared.serving("echo")
    return shared


@pytest.fixture
def heard(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """What `corral events --live` prints, from here on."""
    path = tmp_path / "events.jsonl"
    command = [*CORRAL, "--url", cluster.url, "events", "--live", "--json"]
    with path.open("wb") as out:
        process = subprocess.Popen(command, env=cluster.environment, stdout=out)

    def is_listening() -> bool:
        cluster.client.run("echo", {"message": "is anybody there?"})
        return bool(path.read_text())

    try:
        until("it listens", is_listening)
        yield path
    finally:
        process.terminate()
        process.wait(60)


async def hear(socket: ClientConnection) -> Json:
    told: Json = json.loads(await asyncio.wait_for(socket.recv(), 60))
    return told


async def until_completed(socket: ClientConnection, task_id: str) -> list[Json]:
    found: list[Json] = []
    while True:
        told = await hear(socket)
        if told["data"].get("task_id") == task_id:
            found.append(told)
            if told["event"] == "task_completed":
                return found


def ticket_of(cluster: Cluster) -> str:
    key = (cluster.home / "admin.key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{cluster.url}/events/ticket", headers=headers, json={})
    return str(answer.json()["ticket"])


@pytest.mark.spec("E7")
async def test_a_page_hears_of_a_task_and_goes_on_after_it_was_away(
    cluster: Cluster,
) -> None:
    async def opened(query: str = "") -> ClientConnection:
        place = cluster.url.removeprefix("http")
        url = f"ws{place}/ws?ticket={ticket_of(cluster)}{query}"
        return await connect(url, proxy=None, origin=cluster.url)  # type: ignore[arg-type]

    async with await opened() as page:
        assert (await hear(page))["event"] == "hello"
        task = await asyncio.to_thread(cluster.client.submit, "echo", {"message": "a"})
        told = await until_completed(page, task.task_id)
    assert told[0]["event"] == "task_submitted"
    missed = await asyncio.to_thread(cluster.client.submit, "echo", {"message": "b"})
    async with await opened(f"&after={told[-1]['seq']}") as page:
        assert (await hear(page))["event"] == "hello"
        again = await until_completed(page, missed.task_id)
    assert again[0]["event"] == "task_submitted"
    assert again[0]["seq"] > told[-1]["seq"]


def test_the_terminal_hears_of_it_and_of_a_manager_that_was_killed(
    cluster: Cluster, heard: Path
) -> None:
    def rows() -> list[Json]:
        lines = heard.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def is_told(task_id: str) -> bool:
        done = (row for row in rows() if row["event"] == "task_completed")
        return any(row["data"]["task_id"] == task_id for row in done)

    before = cluster.client.submit("echo", {"message": "before"}).task_id
    until("the task is told", lambda: is_told(before))
    pid = cluster.kill("manager")
    until("it was started again", lambda: cluster.pid("manager") not in (0, pid))
    after = cluster.client.submit("echo", {"message": "after"}).task_id
    cluster.client.wait(after, 60)
    until("a reset is told", lambda: any(r["event"] == "reset" for r in rows()))
    last = cluster.client.submit("echo", {"message": "last"}).task_id
    until("it hears again", lambda: is_told(last))
    numbers = [row["seq"] for row in rows()]
    assert numbers == sorted(numbers)

"""/tasks/{id}/exec: what may be run where, and how output and ends travel."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from corral.manager.output.exec import BUFFER_BYTES, DESERTED_S, KEEP_S, LOST_S, MOST
from tests.unit.api.world import FakeWorker, Json, World, declared, fault, quiet, said

SCRIPT: Json = {"command": ["sleep", "60"]}
COMMAND: Json = {"command": ["ls", "-l"]}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Beside:
    """A script that runs, and the runner beside it."""

    def __init__(self, world: World, worker: FakeWorker, item: Json) -> None:
        self.world, self.worker, self.task = world, worker, item["task_id"]
        self.item = item
        self.id = ""

    async def ask(self, command: Json = COMMAND) -> asyncio.Task[httpx.Response]:
        """Somebody asks for a command: the bell rings, the next answer has it."""
        path = f"/tasks/{self.task}/exec"
        asked = asyncio.create_task(self.world.operate.post(path, command))
        await quiet()
        assert self.worker.id in self.world.engine.rung
        (told,) = said(await self.worker.report())["execs"]
        assert told["command"] == command["command"]
        assert (told["task_id"], told["attempt"]) == (self.task, 1)
        self.id = told["id"]
        return asked

    async def begin(self) -> Beside:
        asked = await self.ask()
        said(await self.tell(1))
        assert said(await asked)["exec_id"] == self.id
        return self

    async def tell(self, number: int, **more: Any) -> httpx.Response:
        path = f"/workers/{self.worker.id}/execs/{self.id}"
        return await self.worker.node.caller.post(path, {"number": number, **more})

    async def say(self, number: int, data: bytes, stream: str = "stdout") -> Json:
        return said(await self.tell(number, chunks=[[stream, b64(data)]]))

    async def read(self, after: int = 0, wait: float = 0) -> Json:
        path = f"/tasks/{self.task}/exec/{self.id}"
        return said(await self.world.operate.get(path, after=after, wait=wait))


Make = Callable[[], Awaitable[Beside]]


@pytest.fixture
def make(world: World) -> Make:
    async def run() -> Beside:
        spec = declared("one", "run_script")
        node = await world.node({**spec, "worker_class": "corral:RunScriptWorker"})
        worker = await node.workers["one"].start()
        await world.submit.submit("run_script", parameters=SCRIPT)
        item = worker.take_one()
        await worker.begin(item)
        return Beside(world, worker, item)

    return run


async def test_output_comes_in_order_told_apart_and_with_the_exit_code(
    make: Make,
) -> None:
    beside = await (await make()).begin()
    await beside.say(2, b"out\n")
    await beside.say(3, b"\xff\x00err", "stderr")
    first = await beside.read()
    assert first["chunks"] == [
        {"stream": "stdout", "data": b64(b"out\n")},
        {"stream": "stderr", "data": b64(b"\xff\x00err")},
    ]
    assert not first["done"]
    said(await beside.tell(4, exit_code=7))
    last = await beside.read(first["next"])
    assert (last["chunks"], last["done"], last["exit_code"]) == ([], True, 7)


async def test_a_page_that_was_lost_comes_again_and_a_repeated_word_counts_once(
    make: Make,
) -> None:
    beside = await (await make()).begin()
    await beside.say(2, b"once")
    await beside.say(2, b"once")
    pages = [await beside.read(0), await beside.read(0)]
    assert pages[0] == pages[1]
    assert len(pages[0]["chunks"]) == 1


async def test_a_reader_that_waits_gets_output_as_it_comes(make: Make) -> None:
    beside = await (await make()).begin()
    waiting = asyncio.create_task(beside.read(0, wait=30))
    await quiet()
    await beside.say(2, b"now")
    assert (await waiting)["chunks"][0]["data"] == b64(b"now")


async def test_a_command_that_cannot_be_run_is_refused_with_the_reason(
    make: Make,
) -> None:
    beside = await make()
    asked = await beside.ask()
    said(await beside.tell(1, error="command not found: ls"))
    assert fault(await asked, 409, "conflict")["message"] == "command not found: ls"
    fault(await beside.tell(2), 404, "not_found")


async def test_a_command_goes_out_until_it_has_begun_and_no_longer(make: Make) -> None:
    beside = await make()
    asked = await beside.ask()
    (again,) = said(await beside.worker.report())["execs"]
    assert again["id"] == beside.id
    said(await beside.tell(1))
    await asked
    assert "execs" not in said(await beside.worker.report())


async def test_only_a_running_script_takes_commands(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit("echo")
    path = f"/tasks/{task_id}/exec"
    item = worker.take_one()
    await worker.begin(item)
    error = fault(await world.operate.post(path, COMMAND), 409, "conflict")
    assert "no script but a task of type 'echo'" in error["message"]
    await worker.finish(item)
    error = fault(await world.operate.post(path, COMMAND), 409, "conflict")
    assert "already ended as completed" in error["message"]
    answer = await world.operate.post("/tasks/nope/exec", COMMAND)
    fault(answer, 404, "task_not_found")


async def test_a_queued_script_takes_no_commands(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "run_script"})
    task_id = await world.submit.submit("run_script", parameters=SCRIPT)
    answer = await world.operate.post(f"/tasks/{task_id}/exec", COMMAND)
    assert "does not run yet" in fault(answer, 409, "conflict")["message"]


@pytest.mark.parametrize("command", [[], [""], ["a\0b"], ["x" * 70_000]])
async def test_no_command_at_all_is_refused(make: Make, command: list[str]) -> None:
    beside = await make()
    path = f"/tasks/{beside.task}/exec"
    answer = await beside.world.operate.post(path, {"command": command})
    fault(answer, 422, "invalid_field")


async def test_it_asks_for_operate_and_leaves_a_trail(make: Make) -> None:
    beside = await (await make()).begin()
    world, path = beside.world, f"/tasks/{beside.task}/exec"
    for who in (world.submit, world.read):
        fault(await who.post(path, COMMAND), 403, "forbidden")
        fault(await who.get(f"{path}/{beside.id}"), 403, "forbidden")
    await world.manager.access.audit.flush()
    rows = [r for r in await world.store.access.audit() if r.action == "task.exec"]
    assert [(r.target, r.data) for r in rows] == [(beside.task, {"command": "ls -l"})]


async def test_another_worker_cannot_speak_for_the_command(make: Make) -> None:
    beside = await (await make()).begin()
    other = await beside.world.worker("echo")
    path = f"/workers/{other.id}/execs/{beside.id}"
    fault(await other.node.caller.post(path, {"number": 9}), 404, "not_found")


async def test_a_command_is_ended_when_asked_to(make: Make) -> None:
    beside = await (await make()).begin()
    path = f"/tasks/{beside.task}/exec/{beside.id}"
    assert said(await beside.tell(2)) == {"stop": False}
    said(await beside.world.operate.delete(path))
    assert said(await beside.tell(3)) == {"stop": True}


async def test_a_command_nobody_reads_is_ended(make: Make) -> None:
    beside = await (await make()).begin()
    beside.world.clock.step(DESERTED_S + 1)
    assert said(await beside.tell(2)) == {"stop": True}


async def test_a_slow_reader_holds_the_command_back(make: Make) -> None:
    beside = await (await make()).begin()
    telling = asyncio.create_task(beside.say(2, b"x" * (BUFFER_BYTES + 1)))
    await quiet()
    assert not telling.done()
    page = await beside.read()
    await beside.read(page["next"])
    assert await telling == {"stop": False}


async def test_silence_of_the_worker_ends_the_wait(make: Make) -> None:
    beside = await (await make()).begin()
    waiting = asyncio.create_task(beside.read(0, wait=30))
    await quiet()
    beside.world.clock.step(LOST_S + 1)
    beside.world.manager.output.execs._all[beside.id].changed.ring()
    page = await waiting
    assert page["done"]
    assert page["exit_code"] is None
    assert "does not answer any more" in page["error"]


async def test_a_manager_that_stops_answers_every_reader(make: Make) -> None:
    beside = await (await make()).begin()
    waiting = asyncio.create_task(beside.read(0, wait=30))
    await quiet()
    beside.world.manager.release()
    page = await waiting
    assert "Corral is being stopped" in page["error"]
    assert said(await beside.tell(2)) == {"stop": True}


async def test_ended_commands_make_room_for_others(make: Make) -> None:
    beside = await make()
    for _ in range(MOST):
        await beside.begin()
        said(await beside.tell(2, exit_code=0))
    path = f"/tasks/{beside.task}/exec"
    fault(await beside.world.operate.post(path, COMMAND), 409, "conflict")
    beside.world.clock.step(KEEP_S + 1)
    await beside.begin()

"""`profile` of a task: it reaches the worker, and is refused where it means nothing."""

from __future__ import annotations

import pytest

from tests.unit.api.tasks.test_caching import keeping, ran
from tests.unit.api.world import World, fault, quiet


async def test_the_order_says_how_a_task_is_profiled(world: World) -> None:
    worker = await world.worker("add")
    for kind in ("python", "torch"):
        task_id = await world.submit.submit(task_type="add", profile=kind)
        await quiet()
        item = worker.take_one()
        assert item["profile"] == kind
        # It is no label that anybody sees.
        assert "labels" not in item
        await worker.finish(item, 1)
        assert (await world.read.task(task_id))["labels"] == {}
    await world.submit.submit(task_type="add")
    await quiet()
    assert "profile" not in worker.take_one()


async def test_who_is_profiled_runs_though_the_answer_is_known(world: World) -> None:
    worker = await keeping(world)
    await ran(world, worker)
    await ran(world, worker, profile="python")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"task_type": "add", "profile": "gdb"}, "profile must be"),
        (
            {
                "task_type": "run_script",
                "payload": {"command": "ls"},
                "profile": "torch",
            },
            "$CORRAL_ARTIFACTS",
        ),
    ],
)
async def test_what_cannot_be_profiled_is_refused(
    world: World, task: dict[str, object], words: str
) -> None:
    answer = await world.submit.send("POST", "/tasks", json=task)
    assert words in fault(answer, 422, "invalid_field")["message"]

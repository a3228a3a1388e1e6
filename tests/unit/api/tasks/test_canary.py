"""Canaries are tasks, but count for nothing."""

from __future__ import annotations

import pytest

from corral.core.tasks.job_type import CANARY
from tests.unit.api.world import World, fault


@pytest.mark.parametrize("how", ["completed", "failed", "lost"])
async def test_a_canary_goes_to_its_worker_and_leaves_no_trace_in_figures(
    world: World, how: str
) -> None:
    other, worker = await world.worker("echo"), await world.worker("sleep")
    task_id = await world.submit.submit(
        CANARY, only_on=worker.id, labels={CANARY: "n1"}, retries=0
    )
    assert other.take() == []
    item = worker.take_one()
    assert item["job_type"] == CANARY
    if how == "completed":
        await worker.finish(item, {"nonce": "n1"})
    elif how == "failed":
        await worker.fail(item)
    else:
        ended = {"task_id": task_id, "attempt": 1, "kind": "lost"}
        await worker.report(outcomes=[ended])
    task = await world.read.task(task_id)
    assert task["status"] == ("completed" if how == "completed" else "failed")
    assert (task["dead_letter"], task["labels"][CANARY]) == (None, "n1")
    told = (await world.read.ask(f"/workers/{worker.id}"))["performance_metrics"]
    assert (told["tasks_completed"], told["tasks_failed"]) == (0, 0)


async def test_nobody_else_may_have_that_job_type(world: World) -> None:
    answer = await world.operate.post("/job-types", {"name": CANARY})
    fault(answer, 422, "invalid_field")
    node = await world.node()
    body = {
        "hostname": "h",
        "workers": [{"name": "w", "worker_class": "a:B", "job_types": [CANARY]}],
    }
    answer = await node.caller.post(f"/nodes/{node.id}/register", body)
    fault(answer, 422, "invalid_field")
    answer = await world.submit.post("/tasks", {"task_type": CANARY})
    fault(answer, 422, "unknown_task_type")

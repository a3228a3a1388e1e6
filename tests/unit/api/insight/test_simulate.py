"""POST /cluster/simulate: the scheduler in virtual time, asked for over HTTP."""

from __future__ import annotations

from tests.unit.api.world import World, fault


async def test_what_the_cluster_did_is_compared_with_more_workers(world: World) -> None:
    worker = await world.worker("echo")
    for _ in range(5):
        await world.admin.submit("echo")
        world.clock.step(1.0)
        for order in worker.orders():
            for item in order["items"]:
                await worker.finish(item)
    asked = {"workload": "recent", "add": "1x24GB"}
    answer = await world.admin.post("/cluster/simulate", asked)
    assert answer.status_code == 200, answer.text
    before, after = answer.json()["scenarios"]
    assert (before["workers"], after["workers"]) == (1, 2)
    assert before["tasks"] == after["tasks"] == 5
    assert before["curve"][-1][1] == 100.0


async def test_what_cannot_be_simulated_is_refused_in_its_words(world: World) -> None:
    ask = world.admin.post
    fault(await ask("/cluster/simulate", {"workload": "x"}), 422, "invalid_field")
    fault(await ask("/cluster/simulate", {"load": 0}), 422, "invalid_field")
    wrong = {"workload": "synthetic", "policy": "--help"}
    told = fault(await ask("/cluster/simulate", wrong), 400, "bad_request")
    assert "no policy '--help'" in told["message"]

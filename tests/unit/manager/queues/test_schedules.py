"""Schedules on a clock that steps: each planned run is one task, whatever happens."""

from __future__ import annotations

from typing import Any

import pytest

from corral.errors import NotLeader, StoreUnavailable
from corral.store.base import TaskFilter
from tests.twins.store import MemoryStore
from tests.unit.api.world import CONFIG, StepClock, World, fault, quiet, running, said

ECHO = {"task_type": "echo", "parameters": {"n": 1}}


async def add(world: World, cron: str = "* * * * *", **more: Any) -> dict[str, Any]:
    await world.operate.tell("/job-types", {"name": "echo"})
    task = {**ECHO, **more.pop("task", {})}
    body = {"name": "s", "cron": cron, "task": task, **more}
    return await world.operate.tell("/schedules", body)


async def runs(world: World) -> list[str]:
    """The times of all runs there are, oldest first."""
    page = await world.store.tasks.list_tasks(TaskFilter(schedule="s"), 5000)
    return [(task.spec.options.scheduled_at or "")[-6:] for task in page.tasks][::-1]


async def pass_s(world: World, seconds: float) -> None:
    world.clock.step(seconds)
    await world.manager.queues.schedules.fire()


async def test_a_run_is_submitted_when_it_is_due_and_not_again(world: World) -> None:
    made = await add(world, "*/5 * * * *", timezone="Europe/Berlin")
    assert made["next_at"] == "2026-01-01T00:05:00Z"
    assert made["explained"] == "Every fifth minute of every hour"
    await pass_s(world, 299)
    assert await runs(world) == []
    await pass_s(world, 1)
    await pass_s(world, 1)
    await world.manager.queues.schedules.fire()
    assert await runs(world) == ["00:05Z"]
    shown = await world.read.ask("/schedules/s")
    assert shown["next_at"] == "2026-01-01T00:10:00Z"
    assert shown["last_at"] == "2026-01-01T00:05:00Z"
    task = await world.read.task(shown["last_task_id"])
    assert task["parameters"] == {"n": 1}
    assert (task["schedule"], task["scheduled_at"]) == ("s", "2026-01-01T00:05Z")
    assert task["labels"] == {}


async def test_one_schedule_tells_its_next_times(world: World) -> None:
    await add(world, "0 3 * * *", timezone="Europe/Berlin")
    shown = await world.read.ask("/schedules/s")
    days = [f"2026-01-0{day}T02:00:00Z" for day in range(1, 6)]
    assert shown["upcoming"] == days
    assert shown["next_at"] == days[0]
    await world.operate.tell("/schedules/s/pause")
    assert (await world.read.ask("/schedules/s"))["upcoming"] == []
    # A list of ten thousand has no use for them.
    (row,) = (await world.read.ask("/schedules"))["schedules"]
    assert "upcoming" not in row


async def test_the_loop_rests_until_a_run_is_due_and_wakes_for_a_new_one(
    world: World,
) -> None:
    schedules = world.manager.queues.schedules
    assert schedules._rest_s() is None
    await add(world, "@daily")
    assert schedules._rest_s() == 86_400
    await add(world, "*/5 * * * *", name="t")
    assert schedules._rest_s() == 300
    world.clock.step(300)
    # The loop of the manager itself: it was told of the change above, not polled.
    await world.operate.tell("/schedules/s/pause")
    await quiet()
    assert (await world.read.ask("/schedules/t"))["last_task_id"]


@pytest.mark.parametrize("step", ["insert_tasks", "advance_schedules"])
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("overlap", ["allow", "skip"])
async def test_a_manager_that_dies_at_any_step_neither_loses_nor_doubles_a_run(
    step: str, is_done: bool, overlap: str
) -> None:
    inner, clock = MemoryStore(), StepClock()
    async with running(CONFIG, inner, clock) as world:
        await add(world, overlap=overlap)
        clock.step(60)
        if is_done:
            world.store.loses_answer(step)
        else:
            world.store.fails_after(step, 0)
        with pytest.raises(StoreUnavailable):
            await world.manager.queues.schedules.fire()
        world.store.forgive()
    async with running(CONFIG, inner, clock) as world:
        await world.manager.queues.schedules.fire()
        await world.manager.queues.schedules.fire()
        assert await runs(world) == ["00:01Z"]
        shown = await world.read.ask("/schedules/s")
        assert shown["next_at"] == "2026-01-01T00:02:00Z"
        assert shown["last_task_id"]
        assert shown["note"] is None
        await pass_s(world, 60)
        if overlap == "allow":
            assert await runs(world) == ["00:01Z", "00:02Z"]


async def test_a_manager_that_lives_on_after_an_outage_goes_on_where_it_was(
    world: World,
) -> None:
    await add(world)
    world.clock.step(60)
    world.store.loses_answer("advance_schedules")
    with pytest.raises(StoreUnavailable):
        await world.manager.queues.schedules.fire()
    await world.manager.queues.schedules.fire()
    assert await runs(world) == ["00:01Z"]
    await pass_s(world, 60)
    assert await runs(world) == ["00:01Z", "00:02Z"]


async def test_a_deposed_manager_fires_nothing(world: World) -> None:
    await add(world)
    await world.store.take_lead("another", world.clock.now())
    world.clock.step(60)
    with pytest.raises(NotLeader):
        await world.manager.queues.schedules.fire()
    assert await runs(world) == []


@pytest.mark.parametrize(
    ("policy", "made_up"),
    [
        ("skip", []),
        ("once", ["00:10Z"]),
        ("all", [f"00:{minute:02}Z" for minute in range(1, 11)]),
    ],
)
async def test_missed_runs_are_treated_as_the_schedule_says(
    policy: str, made_up: list[str]
) -> None:
    inner, clock = MemoryStore(), StepClock()
    async with running(CONFIG, inner, clock) as world:
        await add(world, missed=policy)
        # A line that comes once an hour, and came more than a minute ago.
        await add(world, "5 * * * *", missed=policy, name="t")
    clock.step(600)
    async with running(CONFIG, inner, clock) as world:
        await world.manager.queues.schedules.fire()
        shown = await world.read.ask("/schedules/t")
        if policy == "skip":
            # The run of this very minute is late, not missed.
            assert await runs(world) == ["00:10Z"]
            assert "missed" in shown["note"]
            assert shown["last_task_id"] is None
        else:
            assert await runs(world) == made_up
            assert shown["last_at"] == "2026-01-01T00:05:00Z"
        assert shown["next_at"] == "2026-01-01T01:05:00Z"


async def test_a_run_is_left_out_while_the_one_before_lives(world: World) -> None:
    await add(world, overlap="skip")
    await pass_s(world, 60)
    await pass_s(world, 60)
    assert await runs(world) == ["00:01Z"]
    shown = await world.read.ask("/schedules/s")
    assert "00:02Z was left out" in shown["note"]
    fault(await world.operate.post("/schedules/s/run"), 409, "conflict")
    await world.operate.delete(f"/tasks/{shown['last_task_id']}")
    await pass_s(world, 60)
    assert await runs(world) == ["00:01Z", "00:03Z"]
    assert (await world.read.ask("/schedules/s"))["note"] is None


async def test_what_a_paused_schedule_did_not_run_was_not_missed(world: World) -> None:
    await add(world, missed="all")
    paused = await world.operate.tell("/schedules/s/pause")
    assert (paused["status"], paused["next_at"]) == ("paused", None)
    await pass_s(world, 3600)
    resumed = await world.operate.tell("/schedules/s/resume")
    assert resumed["next_at"] == "2026-01-01T01:01:00Z"
    assert await world.operate.tell("/schedules/s/resume") == resumed
    await pass_s(world, 60)
    assert await runs(world) == ["01:01Z"]


async def test_a_clock_that_is_set_back_runs_nothing_again(world: World) -> None:
    await add(world)
    await pass_s(world, 60)
    await pass_s(world, -30)
    await pass_s(world, 30)
    assert await runs(world) == ["00:01Z"]


async def test_a_refused_run_says_so_and_the_schedule_goes_on(world: World) -> None:
    await add(world)
    await world.operate.delete("/job-types/echo")
    await pass_s(world, 60)
    shown = await world.read.ask("/schedules/s")
    assert "refused: unknown task type" in shown["note"]
    assert shown["next_at"] == "2026-01-01T00:02:00Z"


async def test_each_run_has_its_own_deadline(world: World) -> None:
    await add(world, task={"deadline": 30})
    await pass_s(world, 60)
    shown = await world.read.ask("/schedules/s")
    task = await world.read.task(shown["last_task_id"])
    assert task["deadline"] == "2026-01-01T00:01:30Z"


async def test_a_run_beside_the_plan_is_one_task_for_one_key(world: World) -> None:
    await add(world, "@daily")
    keyed = {"headers": {"Idempotency-Key": "k1"}}
    first, again, other = [
        said(await world.operate.post("/schedules/s/run", **more))["task_id"]
        for more in (keyed, keyed, {})
    ]
    assert first == again != other
    assert await runs(world) == ["now", "now"]


async def test_asking_again_for_the_same_run_is_no_overlap(world: World) -> None:
    await add(world, "@daily", overlap="skip")
    keyed = {"headers": {"Idempotency-Key": "k1"}}
    first = said(await world.operate.post("/schedules/s/run", **keyed))
    again = said(await world.operate.post("/schedules/s/run", **keyed))
    assert first == again
    fault(await world.operate.post("/schedules/s/run"), 409, "conflict")


async def test_a_removed_schedule_runs_no_more_and_its_tasks_stay(world: World) -> None:
    await add(world)
    await pass_s(world, 60)
    said(await world.operate.delete("/schedules/s"))
    await pass_s(world, 60)
    assert await runs(world) == ["00:01Z"]
    for call in ("get", "delete"):
        answer = await getattr(world.operate, call)("/schedules/s")
        fault(answer, 404, "not_found")
    assert (await world.read.ask("/schedules"))["schedules"] == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cron": "nonsense"}, "cron"),
        ({"timezone": "Mars"}, "timezone"),
        ({"missed": "some"}, "missed"),
        ({"overlap": "never"}, "overlap"),
        ({"name": "a b"}, "name"),
        ({"task": {"task_id": "t"}}, "task_id"),
        ({"task": {"depends_on": ["t"]}}, "depends_on"),
        ({"task": {"idempotency_key": "t"}}, "idempotency_key"),
        ({"task": {"run_after": 5}}, "run_after"),
        ({"task": {"deadline": "2026-01-01"}}, "deadline"),
        ({"task": {"labels": {"schedule": "x"}}}, "labels"),
        ({"task": {"retries": -1}}, "retries"),
        ({"task": {"notify": "ftp://x/"}}, "notify"),
        ({"more": 1}, "more"),
    ],
)
async def test_a_schedule_that_could_not_run_is_refused(
    world: World, wrong: dict[str, Any], field: str
) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    body: dict[str, Any] = {"cron": "@daily", **wrong}
    body["task"] = {**ECHO, **wrong.get("task", {})}
    error = fault(await world.operate.post("/schedules", body), 422, "invalid_field")
    assert error["details"]["field"] == field
    assert world.manager.queues.schedules.all() == []


async def test_a_schedule_of_an_unknown_type_or_with_a_taken_name_is_refused(
    world: World,
) -> None:
    await add(world)
    body = {"name": "s", "cron": "@daily", "task": ECHO}
    fault(await world.operate.post("/schedules", body), 409, "conflict")
    body = {"cron": "@daily", "task": {"task_type": "nobody"}}
    fault(await world.operate.post("/schedules", body), 422, "unknown_task_type")
    unnamed = await world.operate.tell("/schedules", {"cron": "@daily", "task": ECHO})
    assert unnamed["name"].startswith("s-")

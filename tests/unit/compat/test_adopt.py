"""What a call of an adopted Celery task sends, and what it refuses to send."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery, chain, chord, group

from corral.client import Client
from corral.compat import celery as compat
from corral.compat.call_options import retries_of, revive
from corral.core.tasks.job_type import check_name
from corral.errors import UnknownTaskType
from tests.unit.client.stand_in import StandIn, fault, submitted


def sent(manager: StandIn) -> dict[str, Any]:
    (seen,) = manager.asked("POST /tasks")
    body: dict[str, Any] = seen.json
    return body


@pytest.fixture
def add(app: Celery, client: Client) -> Any:
    @app.task(name="shop.add", shared=False)
    def add(x: Any, y: Any = 0) -> Any:
        return x + y

    compat.adopt(app, client)
    return add


def test_delay_sends_type_arguments_and_an_id(manager: StandIn, add: Any) -> None:
    result = add.delay(1, y=2)
    assert sent(manager) == {
        "task_type": "celery.shop.add",
        "parameters": {"task": "shop.add", "args": [1], "kwargs": {"y": 2}},
        "task_id": result.id,
    }


def test_options_of_apply_async_become_ours(manager: StandIn, add: Any) -> None:
    eta = datetime(2030, 1, 1, tzinfo=UTC)
    add.apply_async(
        (1,), eta=eta, expires=60, priority=7, task_id="mine", time_limit=9, queue="q"
    )
    body = sent(manager)
    assert datetime.fromisoformat(body.pop("run_after")) == eta
    del body["task_type"], body["parameters"]
    assert body == {"task_id": "mine", "deadline": 60, "priority": 7, "timeout": 9.0}


def test_eta_without_a_zone_is_in_the_apps_zone(
    manager: StandIn, app: Celery, add: Any
) -> None:
    app.conf.timezone = "Asia/Tokyo"
    add.apply_async((1,), eta=datetime(2030, 1, 1))  # noqa: DTZ001
    told = datetime.fromisoformat(sent(manager)["run_after"])
    assert told == datetime(2030, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo"))


@pytest.mark.parametrize(("broker", "ours"), [("redis://x", -3), ("amqp://x", 3)])
def test_priority_keeps_the_order_the_broker_gave_it(
    manager: StandIn, app: Celery, add: Any, broker: str, ours: int
) -> None:
    app.conf.broker_url = broker
    add.apply_async((1,), priority=3)
    assert sent(manager)["priority"] == ours


def test_every_way_to_call_a_task_leads_to_corral(
    manager: StandIn, app: Celery, add: Any
) -> None:
    @app.task(shared=False, name="shop.late")
    def late() -> None: ...

    late.delay()
    add.s(1).delay(2)
    app.send_task("elsewhere.task", [1], countdown=5)
    types = [seen.json["task_type"] for seen in manager.asked("POST /tasks")]
    assert types == ["celery.shop.late", "celery.shop.add", "celery.elsewhere.task"]


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, float("nan"), "\ud800", {(1, 2): 3}, [lambda: 0], 1j],
    ids=["object", "set", "nan", "surrogate", "tuple key", "function", "complex"],
)
def test_argument_json_cannot_carry_is_a_type_error_and_nothing_is_sent(
    manager: StandIn, add: Any, value: Any
) -> None:
    with pytest.raises(TypeError, match=r"arguments of shop\.add cannot be sent"):
        add.delay(value)
    assert manager.seen == []


def test_call_with_wrong_arguments_is_a_type_error_and_nothing_is_sent(
    manager: StandIn, add: Any
) -> None:
    with pytest.raises(TypeError, match="missing 1 required"):
        add.delay()
    with pytest.raises(TypeError, match="must be a list or tuple"):
        add.apply_async("ab")
    assert manager.seen == []


def test_dates_survive_the_way(manager: StandIn, add: Any) -> None:
    add.delay(date(2026, 1, 2), {"raw": b"\xff", "own": {"__type__": "mine"}})
    there = revive(sent(manager)["parameters"])
    assert there["args"] == [
        date(2026, 1, 2),
        {"raw": b"\xff", "own": {"__type__": "mine"}},
    ]


@pytest.mark.parametrize(
    "compose",
    [
        lambda add: group(add.s(1), add.s(2))(),
        lambda add: chain(add.s(1), add.s(2))(),
        lambda add: chord([add.s(1)], add.s(2))(),
        lambda add: add.apply_async((1,), link=add.s(2)),
        lambda add: add.map([1, 2]).delay(),
    ],
)
def test_canvas_is_refused_and_nothing_is_sent(
    manager: StandIn, app: Celery, add: Any, compose: Callable[[Any], Any]
) -> None:
    app.conf.result_backend = "redis://nowhere.example"
    with pytest.raises(NotImplementedError):
        compose(add)
    assert manager.seen == []


def test_task_no_worker_has_served_yet_is_made_known(
    manager: StandIn, add: Any
) -> None:
    manager.on("POST /tasks", fault("unknown_task_type", 422), submitted())
    manager.on("POST /job-types", {})
    add.delay(1)
    assert manager.asked("POST /job-types")[0].json["name"] == "celery.shop.add"
    first, second = (seen.json for seen in manager.asked("POST /tasks"))
    assert first == second


def test_key_that_may_not_register_gets_the_first_complaint(
    manager: StandIn, add: Any
) -> None:
    manager.on("POST /tasks", fault("unknown_task_type", 422, "unknown: add"))
    manager.on("POST /job-types", fault("forbidden", 403))
    with pytest.raises(UnknownTaskType, match="unknown: add"):
        add.delay(1)


def test_decorated_task_goes_to_corral_and_its_neighbour_does_not(
    manager: StandIn, client: Client
) -> None:
    app = Celery("shop", broker="memory://", set_as_current=False)

    @compat.task(client=client)
    @app.task(shared=False, name="shop.ours")
    def ours() -> None: ...

    @app.task(shared=False, name="shop.theirs")
    def theirs() -> None: ...

    assert isinstance(ours.delay(), compat.AsyncResult)
    assert not isinstance(theirs.delay(), compat.AsyncResult)
    assert sent(manager)["task_type"] == "celery.shop.ours"


def test_retries_are_given_to_tasks_that_ask_for_them_alone(app: Celery) -> None:
    @app.task(shared=False, bind=True)
    def plain(self: Any) -> None: ...

    @app.task(shared=False, bind=True, max_retries=4)
    def asks(self: Any) -> None:
        self.retry()

    @app.task(shared=False, bind=True, max_retries=None)
    def forever(self: Any) -> None:
        self.retry()

    @app.task(shared=False, autoretry_for=(OSError,), retry_kwargs={"max_retries": 6})
    def auto() -> None: ...

    @app.task(shared=False, corral_retries=2)
    def told() -> None: ...

    tasks = (plain, asks, forever, auto, told)
    assert [retries_of(task) for task in tasks] == [0, 4, 1000, 6, 2]


@pytest.mark.parametrize("name", ["a b/é", "x" * 200, "-lead", ""])
def test_any_task_name_has_a_job_type_of_its_own(name: str) -> None:
    assert check_name(compat.job_type(name), "job_type").startswith("celery.")
    assert compat.job_type("a b") != compat.job_type("a-b")


def test_launch_names_a_job_type_for_every_task(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /workers", {"workers": []})
    where = "examples.celery_project.tasks"
    compat.launch(f"{where}:app", client=client, concurrency=3)
    compat.launch(f"{where}:app", client=client, tasks=["nap"])
    both, one = (seen.json for seen in manager.asked("POST /workers"))
    assert both["worker_class"] == "corral.compat.celery:CeleryWorker"
    assert both["params"] == {"app": f"{where}:app"}
    own = [f"celery.{where}.{name}" for name in ("add", "divide", "fetch")]
    assert set(own) < set(both["job_types"])
    assert one["job_types"] == ["celery.nap"]
    assert one["params"]["tasks"] == ["nap"]


def test_corral_costs_no_celery_for_those_who_do_not_come_from_it() -> None:
    code = "import sys, corral, corral.compat, corral.client; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"celery", "kombu"} & set(run.stdout.split())

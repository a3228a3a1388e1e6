"""What a task submits came with the request that the task itself came with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.client.stand_in import Answer, StandIn, serve, submitted
from tests.unit.worker.conftest import item, value
from tests.unit.worker.runner.test_main import MakeBench

HERE = "tests.unit.worker.passing_workers"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"


@pytest.fixture
def manager() -> Iterator[StandIn]:
    with serve() as made:
        made.on("POST /tasks", Answer(submitted(), 201))
        yield made


def ids(manager: StandIn) -> list[tuple[str | None, str | None]]:
    """With which ids tasks were submitted."""
    sent = manager.asked("POST /tasks")
    return [(s.headers.get("x-request-id"), s.headers.get("traceparent")) for s in sent]


@pytest.mark.parametrize(
    ("worker_class", "payload"),
    [
        ("PassesOn", {}),
        ("PassesOn", {"thread": True}),
        ("PassesOnInLanes", {}),
    ],
)
def test_each_task_passes_on_its_own_ids(
    bench: MakeBench, manager: StandIn, worker_class: str, payload: dict[str, Any]
) -> None:
    told = {"url": manager.url, **payload}
    first = item(told, request_id="r-1", traceparent=PARENT)
    second = item(told, request_id="r-2")
    worker = bench(f"{HERE}:{worker_class}")
    for outcome in worker.run(first, second, item(told)):
        value(outcome)
    assert ids(manager) == [("r-1", PARENT), ("r-2", None), (None, None)]


def test_a_batch_passes_on_what_all_its_tasks_came_with(
    bench: MakeBench, manager: StandIn
) -> None:
    worker, told = bench(f"{HERE}:PassesOnTogether"), {"url": manager.url}

    def run(*of: tuple[str, str]) -> None:
        items = [item(told, request_id=r, traceparent=parent) for r, parent in of]
        assert [value(o) for o in worker.run(*items)] == [len(of)] * len(of)

    run(("r-1", PARENT), ("r-1", PARENT))
    run(("r-1", PARENT), ("r-1", OTHER))
    run(("r-1", ""), ("r-2", ""))
    assert ids(manager) == [("r-1", PARENT), ("r-1", None), (None, None)]

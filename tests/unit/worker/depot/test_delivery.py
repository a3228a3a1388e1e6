"""An order's models are on the node before a runner has it, or its tasks say why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from corral.core.models.model import fetch_payload
from corral.core.tasks.job_type import MODEL_TASK
from corral.wire.orders import AttemptError, AttemptOutcome, Item
from corral.worker.depot.fetch_model import ManagerAccess, ModelFetch, ModelFolders
from corral.worker.depot.model_folder import Depot
from corral.worker.manager_link import ManagerLink
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.model_delivery import Delivery
from corral.worker.supervisor.reports import Notes
from tests.unit.worker.depot.file_server import WORKER, FileServer

FILES = {"config.json": b"{}", "model.safetensors": b"weights" * 100_000}


@pytest.fixture
def server() -> Iterator[FileServer]:
    made = FileServer()
    made.add("tiny", FILES)
    yield made
    made.close()


@pytest.fixture
def told() -> list[Notes]:
    return []


@pytest.fixture
def delivery(
    server: FileServer, tmp_path: Path, told: list[Notes]
) -> Iterator[Delivery]:
    link = ManagerLink(server.url, "key")
    depot, reach = Depot(tmp_path, 1 << 30), ManagerAccess(WORKER, server.url, "key")
    room = ModelFetch(depot, link, reach, ModelFolders())
    yield Delivery(room, lambda: (), told.append)
    link.close()


def item(task_id: str, model: str | None = None, **more: Any) -> Item:
    return Item(task_id, 1, Raw(b"{}"), model=model, **more)


def pull(task_id: str, model: str = "tiny") -> Item:
    payload = Raw(fetch_payload(model).encode())
    return Item(task_id, 1, payload, MODEL_TASK)


def test_a_pull_ends_without_a_runner_and_tells_how_far_it_is(
    delivery: Delivery, told: list[Notes], tmp_path: Path
) -> None:
    batch = OrderBatch([pull("t1"), item("t2")])
    given = delivery.prepare(batch)
    given.release()
    (done,) = given.outcomes
    assert (done.task_id, done.kind) == ("t1", "completed")
    assert isinstance(done.result, Raw)
    result = json.loads(bytes(done.result))
    assert result["folder"] == str(tmp_path / "tiny")
    assert [left.task_id for left in batch.items] == ["t2"]
    last = told[-1]
    assert last.progress["t1", 1] == (1.0, "tiny is here")
    assert last.started[0][:2] == ("t1", 1)


def test_tasks_of_a_model_that_cannot_be_had_fail_and_others_go_on(
    delivery: Delivery, server: FileServer
) -> None:
    server.lies["config.json"] = b"[]"
    batch = OrderBatch([item("t1", "tiny"), item("t2"), item("t3", "not-listed")])
    given = delivery.prepare(batch)
    given.release()
    (failed,) = given.outcomes
    assert (failed.task_id, failed.kind) == ("t1", "failed")
    assert failed.error is not None
    assert failed.error.kind == "corrupt_model"
    assert [left.task_id for left in batch.items] == ["t2", "t3"]


def test_a_pull_of_what_nobody_knows_fails(delivery: Delivery) -> None:
    (failed,) = delivery.prepare(OrderBatch([pull("t1", "none")])).outcomes
    assert failed.error is not None
    assert "the catalogue has no such model" in failed.error.message


def test_what_nobody_wants_any_more_is_not_fetched(
    delivery: Delivery, tmp_path: Path
) -> None:
    batch = OrderBatch([item("t1", "tiny"), item("t2", "tiny")])
    batch.drop(("t1", 1))
    batch.recall()
    given = delivery.prepare(batch)
    assert {o.task_id: o.kind for o in given.outcomes} == {
        "t1": "cancelled",
        "t2": "returned",
    }
    assert not batch.items
    assert not (tmp_path / "tiny").exists()


def test_a_model_nobody_could_be_asked_about_is_explained(
    delivery: Delivery, server: FileServer
) -> None:
    server.status = 503
    given = delivery.prepare(OrderBatch([item("t1", "other")]))
    unknown = AttemptOutcome(
        "t1", 1, "failed", error=AttemptError("unknown_model", "no model")
    )
    other = AttemptOutcome(
        "t2", 1, "failed", error=AttemptError("exception", "it broke")
    )
    given.explain(Notes(outcomes=[unknown, other]))
    assert unknown.error is not None
    assert unknown.error.message == "no model; the model manager does not answer"
    assert other.error is not None
    assert other.error.message == "it broke"

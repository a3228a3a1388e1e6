"""A stand-in manager with a client, and real runners for the Celery worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from corral.client import Client, Patience
from tests.unit.client.stand_in import StandIn, serve, submitted
from tests.unit.worker.conftest import Bench
from tests.unit.worker.warm_runners import launch_celery

ROOT = Path(__file__).parents[3]


@pytest.fixture
def manager() -> Iterator[StandIn]:
    with serve() as stand_in:
        stand_in.on("POST /tasks", submitted())
        yield stand_in


@pytest.fixture
def client(manager: StandIn) -> Iterator[Client]:
    patience = Patience(total_s=5.0, first_s=5.0)
    with Client(manager.url, "corral_k_s", patience=patience) as client:
        yield client


@pytest.fixture
def app() -> Celery:
    """An app whose broker does not exist: whoever dials it fails."""
    return Celery("shop", broker="amqp://nowhere.example", set_as_current=False)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    made: list[Bench] = []

    def make(**params: Any) -> Bench:
        worker_class = "corral.compat.celery:CeleryWorker"
        made.append(Bench(worker_class, params, launch_celery))
        return made[-1]

    yield make
    for each in made:
        each.pool.kill()
        each.pool.join()

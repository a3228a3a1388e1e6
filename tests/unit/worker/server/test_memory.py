"""What servers take on cards, told by a stand-in for the driver's library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.worker.server.conftest import Desk

MIB = 1024 * 1024


class Driver:
    """Has one card. `row` says of which process it tells, if of any."""

    def __init__(self) -> None:
        self.used_mb = 500
        self.row: Callable[[], int | None] = lambda: None
        self.library = SimpleNamespace(
            NVMLError=type("NVMLError", (Exception,), {}),
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetCount=lambda: 1,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetHandleByUUID=["GPU-a"].index,
            nvmlDeviceGetMemoryInfo=self._memory,
            nvmlDeviceGetComputeRunningProcesses=self._processes,
        )

    def _memory(self, handle: int) -> Any:
        self.used_mb += 300  # as if a model had been loaded since
        return SimpleNamespace(used=self.used_mb * MIB)

    def _processes(self, handle: int) -> list[Any]:
        stranger = SimpleNamespace(pid=1, usedGpuMemory=9000 * MIB)
        pid = self.row()
        ours = [] if pid is None else [SimpleNamespace(pid=pid, usedGpuMemory=7 * MIB)]
        return [stranger, *ours]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", made.library)
    monkeypatch.setenv("CORRAL_GPUS", "GPU-a")
    return made


def test_memory_is_that_of_the_servers_processes(
    serve: Callable[..., Desk], driver: Driver
) -> None:
    desk = serve(models={"counter": {"size_mb": 50}})
    driver.row = lambda: desk.replicas[0]["pid"]
    assert desk.worker.model_memory_mb("counter") == 7.0


def test_where_the_driver_does_not_know_them_it_is_what_their_start_has_added(
    serve: Callable[..., Desk], driver: Driver
) -> None:
    desk = serve(models={"counter": {"size_mb": 50}})
    assert desk.worker.model_memory_mb("counter") == 300.0


def test_without_cards_it_is_what_the_definition_says(
    serve: Callable[..., Desk],
) -> None:
    desk = serve(models={"counter": {"size_mb": 50}})
    assert desk.worker.model_memory_mb("counter") == 50.0
    assert desk.worker.model_sizes() == {"counter": 50.0}

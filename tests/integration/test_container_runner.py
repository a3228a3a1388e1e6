"""A worker's runner inside an image that has a Python and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corral.core.tasks.environment import ContainerEnvironment
from corral.errors import WorkerError
from corral.wire.orders import Item
from corral.worker.container.engine import ContainerEngine
from corral.worker.container.job import ContainerSettings
from corral.worker.container.runner import ContainerLaunch
from corral.worker.pool.runner_pool import RunnerPool
from corral.worker.pool.runner_process import Exited, RunnerProcess
from corral.worker.pool.transport import RunnerSpec
from corral.worker.protocol import DoneFrame, EndFrame, RunFrame
from corral.worker.shared_counters import SharedCells
from tests.acceptance.cluster import until
from tests.containers import SHELL, engine, podman_files, python_image, settings

__all__ = ["engine", "podman_files", "python_image", "settings"]

ECHO = "corral.worker.builtin:EchoWorker"
SLEEP = "corral.worker.builtin:SleepWorker"
MINE = """
import os
class Mine:
    def run(self, payload):
        print("printed inside")
        return [os.environ["GREETING"], os.getcwd()]
"""
Launch = Callable[..., RunnerProcess]


class Started:
    """A runner, and the thread that stays with it as a pool's keeper does."""

    def __init__(self, spec: RunnerSpec) -> None:
        ready = threading.Event()
        self.runner = RunnerProcess(spec, lambda _: ready.set())
        self.keeper = threading.Thread(target=self.runner.reap)
        self.keeper.start()
        assert ready.wait(60), self.runner.fault


@pytest.fixture
def launch(engine: ContainerEngine, python_image: str) -> Iterator[Launch]:
    started: list[Started] = []

    def begin(worker_class: str, **more: Any) -> RunnerProcess:
        told = ContainerEnvironment(python_image)
        how = ContainerLaunch(engine, told, "test/runner", **more)
        started.append(Started(RunnerSpec(worker_class, {}, launch=how)))
        return started[-1].runner

    yield begin
    for each in started:
        each.runner.kill()
        each.keeper.join()
    assert engine.sweep("test/runner") == []


def item(payload: Any) -> Item:
    return Item("t1", 1, msgspec.Raw(msgspec.json.encode(payload)))


def events(runner: RunnerProcess) -> Iterator[Any]:
    while not isinstance(event := runner.next_event(30), EndFrame | Exited | None):
        yield event
    yield event


def test_echo_worker_runs_in_an_image_without_corral(launch: Launch) -> None:
    runner = launch(ECHO)
    for word in ("one", "two"):
        runner.cells.reset()
        runner.send(RunFrame([item({"message": word})]))
        done, end = events(runner)
        assert isinstance(done, DoneFrame)
        assert isinstance(end, EndFrame)
        [outcome] = done.outcomes
        assert isinstance(outcome.result, msgspec.Raw)
        assert msgspec.json.decode(outcome.result) == {"echoed": word}


def test_a_runner_in_a_container_dies_whole_when_killed(launch: Launch) -> None:
    runner = launch(SLEEP)
    runner.send(RunFrame([item({"hang": True})]))
    runner.kill()
    assert list(events(runner)) == [Exited(-9, runner.cells.current)]
    until("it is gone", lambda: not Path("/proc", str(runner.pid)).exists())


def test_the_cells_are_shared_with_a_container(launch: Launch) -> None:
    runner = launch(SLEEP)
    runner.cells.reset()
    runner.cells.stop_after_current()
    runner.send(RunFrame([item({"seconds": 0}), item({"seconds": 0})]))
    [done, _] = events(runner)
    assert len(done.outcomes) == 1


def test_an_image_without_python_is_refused_in_one_line(
    engine: ContainerEngine,
) -> None:
    how = ContainerLaunch(engine, ContainerEnvironment(SHELL), "test/runner")
    cells = SharedCells.create()
    with pytest.raises(WorkerError, match=r"command 'python' is not in image"):
        how(RunnerSpec(ECHO, {}), cells)
    cells.unlink()
    assert engine.sweep("test/runner") == []


def test_a_pool_says_why_no_container_starts(engine: ContainerEngine) -> None:
    told = ContainerEnvironment("localhost/not-there:9")
    how = ContainerLaunch(engine, told, "test/runner")
    changed = threading.Event()
    pool = RunnerPool(RunnerSpec(ECHO, {}, launch=how), 1, changed.set)
    pool.start()
    assert changed.wait(60)
    assert "'localhost/not-there:9' is not on this node" in (pool.error or "")
    pool.kill()
    pool.join()


def test_user_code_of_the_image_runs_with_what_the_image_was_given(
    engine: ContainerEngine, python_image: str, settings: ContainerSettings
) -> None:
    code = Path(settings.allowed_volumes[0], "code")
    code.mkdir()
    (code / "mine.py").write_text(MINE)
    told = ContainerEnvironment(
        python_image,
        working_dir="/code",
        volumes={str(code): "/code:ro"},
        environment={"GREETING": "hello"},
    )
    how = ContainerLaunch(engine, told, "test/runner")
    started = Started(RunnerSpec("mine:Mine", {}, launch=how))
    runner = started.runner
    runner.send(RunFrame([item(None)]))
    said, done, _ = events(runner)
    lines = msgspec.json.decode(said.lines)
    assert [line for _, _, line in lines] == ["printed inside"]
    assert msgspec.json.decode(done.outcomes[0].result) == ["hello", "/code"]
    runner.kill()
    started.keeper.join()

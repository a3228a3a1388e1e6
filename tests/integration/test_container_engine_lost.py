"""Whoever serves our containers is killed: what runs is lost, and the next one runs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from corral.worker.container.engine import ContainerEngine, find
from corral.worker.container.job import ContainerJob, ContainerSettings
from corral.worker.isolation.job import SandboxLimits
from tests.containers import SHELL, engine, podman_files, settings

__all__ = ["engine", "podman_files", "settings"]
# The SDK leaves a socket to the garbage collector when nobody answers.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
PARTS = pytest.mark.parametrize("part", ["container.guardian", "system service"])
SLEEPER = """
import os, sys
from corral.worker.container.engine import find
from corral.worker.container.job import ContainerJob, ContainerSettings
engine = find(ContainerSettings(may_pull=False))
job = ContainerJob(sys.argv[1], ("sleep", "65432"), mark="lost/1")
engine.start(job, lambda *_: None)
print("started", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def own(
    engine: ContainerEngine, settings: ContainerSettings
) -> Iterator[ContainerEngine]:
    """Another engine of this process, with a service of its own."""
    found = find(settings)
    assert found is not None
    if not found.podman:
        found.close()
        pytest.skip("the engine here is the machine's own, and not ours to kill")
    yield found
    found.close()
    gc.collect()
    assert ids(engine) == []


def ids(engine: ContainerEngine) -> list[str]:
    found = engine._api.containers(all=True, filters={"label": "corral.mark"})
    return [container["Id"] for container in found]


def kill(part: str, owner: ContainerEngine) -> None:
    """One part of this engine alone: its service's folder has the guardian's pid."""
    guardian = psutil.Process(int(Path(owner.host).parent.name.split("-")[2]))
    for process in (guardian, *guardian.children(recursive=True)):
        if part in " ".join(process.cmdline()):
            process.kill()
            psutil.wait_procs([process], 60)
            return
    raise AssertionError(part)


def job(*argv: str, **limits: int) -> ContainerJob:
    return ContainerJob(SHELL, argv, mark="test/lost", limits=SandboxLimits(**limits))


@PARTS
def test_the_next_container_starts_after_a_kill(
    own: ContainerEngine, part: str
) -> None:
    kill(part, own)
    running = own.start(job("sh", "-c", "exit 6"), lambda *_: None)
    assert running.wait(60) == 6
    running.stop(0)


@PARTS
def test_what_runs_is_lost_and_removed(
    own: ContainerEngine, engine: ContainerEngine, part: str
) -> None:
    running = own.start(job("sleep", "600"), lambda *_: None)
    kill(part, own)
    assert running.wait(60) is not None
    assert running.is_lost
    running.stop(0)
    assert ids(engine) == []


def test_what_ended_before_the_kill_has_its_own_end(own: ContainerEngine) -> None:
    running = own.start(job("sh", "-c", "exit 5"), lambda *_: None)
    assert running.wait(60) == 5
    kill("container.guardian", own)
    running.stop(0)
    assert not running.is_lost


def test_containers_go_when_we_and_their_service_are_killed_at_once(
    own: ContainerEngine, engine: ContainerEngine
) -> None:
    with start_sleeper() as other:
        # The guardian alone is left, and starts the service again to clean up.
        for process in psutil.Process(other.pid).children(recursive=True):
            if "system" in process.cmdline():
                process.kill()
        other.kill()
        assert other.stderr is not None
        assert other.stderr.read() == b""
    assert ids(engine) == []


def test_a_sweep_of_the_dead_spares_the_living(
    own: ContainerEngine, engine: ContainerEngine
) -> None:
    with start_sleeper() as other:
        assert own.sweep_dead("lost/") == []
        for process in psutil.Process(other.pid).children():
            process.kill()
        other.kill()
        other.wait()
        assert own.sweep_dead("lost/") == ["lost/1"]
    assert ids(engine) == []


def test_a_limit_on_file_size_alone_is_kept(own: ContainerEngine) -> None:
    script = "head -c 4000000 /dev/zero > /tmp/f; wc -c < /tmp/f"
    said: list[bytes] = []
    running = own.start(
        job("sh", "-c", script, file_size_mb=1), lambda _, data: said.append(data)
    )
    running.wait(60)
    running.stop(0)
    assert b"1048576" in b"".join(said)


def start_sleeper() -> subprocess.Popen[bytes]:
    other = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, SHELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"started\n"
    return other

"""Scripts of every sort while parts of the node are killed: nothing is left behind.

`make show-scripts` runs 200 of them. CHAOS_SEED chooses another course of events.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from docker import APIClient

from corral.client import TaskDetail
from corral.errors import CorralError
from tests.acceptance.cluster import Cluster, until
from tests.acceptance.leftover import Machine
from tests.acceptance.mischief import HANGING_SSH, Case, Stage, commit
from tests.containers import SHELL, engine, podman_files, settings

__all__ = ["engine", "podman_files", "settings"]
JOBS = int(os.environ.get("CHAOS_JOBS", "30"))
SEED = int(os.environ.get("CHAOS_SEED", "4"))
WORKER = "corral.worker.script.worker:RunScriptWorker"
AT_ONCE = 6
NEVER = 1e9
pytestmark = pytest.mark.timeout(120 + 6 * JOBS)

# Parts of a node, by a word of their command lines, and how often they are chosen.
PARTS = {
    "corral.worker.runner": 5,
    "isolation/guardian.py": 4,
    "corral.worker.container.guardian": 2,
    "system service": 2,
    "bwrap": 1,
    "uv --no-progress": 1,
    "git": 1,
    "corral.worker.supervisor": 1,
    "agent": 1,
}
# Each death of these is answered by a longer pause.
RARE = {"corral.worker.supervisor": 40, "agent": 60}


class Vandal:
    """Kills parts of a cluster's node, now and then."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._dice = dice
        self._next = time.monotonic() + 1.0

    def tick(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._dice.uniform(0.1, 1.5)
        [part] = self._dice.choices(list(PARTS), list(PARTS.values()))
        most = 1 + JOBS // RARE[part] if part in RARE else JOBS
        if self.done[part] >= most:
            return
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if part == "agent":
                self._cluster.kill_with_family("agent")
                self.done[part] += 1
            elif victims := self.find(part):
                self._dice.choice(victims).kill()
                self.done[part] += 1

    def find(self, part: str) -> list[psutil.Process]:
        agent = psutil.Process(self._cluster.pid("agent"))
        found = []
        for process in agent.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if (
                    (part in line)
                    if " " in part or "." in part
                    else (part == process.name())
                ):
                    found.append(process)
        return found


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """A short name: sockets are made below it."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def cluster(
    podman_files: Path,
    engine: Any,
    temporary: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("chaos")
    programs = home / "programs"
    programs.mkdir()
    (programs / "ssh").write_text(HANGING_SSH)
    (programs / "ssh").chmod(0o755)
    started = Cluster.start(
        home,
        [f"{WORKER}=run_scriptx3"],
        CORRAL_GIT_ALLOW_FILE="true",
        CORRAL_CACHE_LIMIT_GB="0.1",
        CONTAINERS_CONF=str(podman_files / "containers.conf"),
        CONTAINERS_STORAGE_CONF=str(podman_files / "storage.conf"),
        TMPDIR=str(temporary),
        PATH=os.pathsep.join((str(programs), os.environ["PATH"])),
    )
    try:
        started.serving("run_script")
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def machine(
    cluster: Cluster, engine: Any, podman_files: Path, temporary: Path
) -> Iterator[Machine]:
    api = APIClient(base_url=engine.host, version="auto")
    yield Machine(cluster.home, temporary, podman_files, api)
    api.close()


def play(
    cluster: Cluster, machine: Machine, cases: list[Case], vandal: Vandal
) -> list[tuple[Case, TaskDetail]]:
    """Run all cases, a few at once, while parts are killed; how each ended."""
    todo, client = list(reversed(cases)), cluster.client
    live: dict[str, tuple[Case, float]] = {}
    ended: list[tuple[Case, TaskDetail]] = []
    while todo or live:
        while todo and len(live) < AT_ONCE:
            case = todo.pop()
            made = client.submit("run_script", case.payload, **case.options)
            machine.tasks.add(made.task_id)
            after_s = NEVER if case.cancel_after_s is None else case.cancel_after_s
            live[made.task_id] = case, time.monotonic() + after_s
        for task_id, (case, cancel_at) in live.items():
            if time.monotonic() >= cancel_at:
                live[task_id] = case, time.monotonic() + NEVER
                with contextlib.suppress(CorralError):
                    client.cancel(task_id)
        vandal.tick()
        for task in client.collect(list(live)).tasks:
            ended.append((live.pop(task.task_id)[0], client.get_task(task.task_id)))
        time.sleep(0.05)
    return ended


def settle(cluster: Cluster, machine: Machine, project: Path) -> None:
    """One more small job in each environment, once the node is whole again."""
    cluster.serving("run_script")
    for where in (
        {},
        {"environment": {"docker": {"image": SHELL}}},
        {"environment": {"git": {"repo_url": f"file://{project}"}}},
    ):
        payload = {"command": ["sh", "-c", "echo last"], **where}
        task = cluster.client.submit("run_script", payload, retries=3)
        machine.tasks.add(task.task_id)
        ended = cluster.client.wait(task, 60)
        assert ended.status == "completed", ended.error


def say(line: str) -> None:
    """Shown when a test fails, and by `make show-scripts`."""
    sys.stdout.write(f"{line}\n")


def clean(machine: Machine) -> None:
    with contextlib.suppress(AssertionError):
        until("nothing is left", lambda: not machine.left(), 15)
    assert not machine.left()


def test_nothing_is_left_of_scripts_when_parts_are_killed_at_random(
    cluster: Cluster, machine: Machine, tmp_path: Path
) -> None:
    say(f"CHAOS_SEED={SEED} CHAOS_JOBS={JOBS}")
    stage = Stage(tmp_path, cluster.client, random.Random(SEED))
    vandal = Vandal(cluster, random.Random(SEED + 1))
    ended = play(cluster, machine, stage.cases(JOBS), vandal)
    say(f"killed: {dict(vandal.done)}")
    say(f"ends: {dict(Counter(task.status for _, task in ended))}")
    say(f"attempts: {dict(Counter(task.attempt for _, task in ended))}")
    assert len(ended) == JOBS
    faults = [fault for case, task in ended if (fault := case.fault(task))]
    assert not faults, "\n".join(faults)
    settle(cluster, machine, commit(tmp_path / "last", a__sh="exit 0"))
    clean(machine)

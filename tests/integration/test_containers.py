"""Commands in real containers, on whichever engine this machine has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from corral.errors import WorkerError
from corral.worker.container.container import RunningContainer
from corral.worker.container.engine import ContainerEngine
from corral.worker.container.job import ContainerJob, ContainerSettings
from corral.worker.isolation.job import SandboxLimits
from tests.containers import SHELL, engine, podman_files, python_image, settings

__all__ = ["engine", "podman_files", "python_image", "settings"]

# A shell, two children, one with a session of its own and an orphan in it.
FAMILY = (
    "sleep 76543 & setsid sh -c '(sleep 76543 & echo ready) & sleep 76543' & "
    "sleep 76543; echo never"
)


class Output:
    """What a container said, and a signal when it says a word."""

    def __init__(self, word: str = "ready") -> None:
        self.said = {"stdout": bytearray(), "stderr": bytearray()}
        self.heard = threading.Event()
        self._word = word.encode()

    def __call__(self, stream: str, data: bytes) -> None:
        self.said[stream] += data
        if self._word in data:
            self.heard.set()

    @property
    def text(self) -> str:
        return self.said["stdout"].decode()


Start = Callable[..., tuple[RunningContainer, Output]]


@pytest.fixture
def start(engine: ContainerEngine) -> Iterator[Start]:
    started: list[RunningContainer] = []

    def begin(*argv: str, **more: Any) -> tuple[RunningContainer, Output]:
        output = Output()
        job = ContainerJob(SHELL, argv, mark="test/1", **more)
        started.append(engine.start(job, output))
        return started[-1], output

    yield begin
    for running in started:
        running.stop(0)
    assert engine_ids(engine) == []


def engine_ids(engine: ContainerEngine) -> list[str]:
    found = engine._api.containers(all=True, filters={"label": "corral.mark"})
    return [container["Id"] for container in found]


def sleepers(seconds: str) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [])[-1:] == [seconds]
    ]


def test_a_command_gets_its_environment_and_folder_and_gives_output_and_code(
    start: Start,
) -> None:
    script = "echo $GREETING from $(pwd); echo oops >&2; exit 7"
    running, output = start(
        "sh", "-c", script, environment={"GREETING": "hello"}, working_dir="/tmp"
    )
    assert running.wait(60) == 7
    assert output.said == {"stdout": b"hello from /tmp\n", "stderr": b"oops\n"}
    assert not running.oom_killed


def test_a_command_has_no_network_no_capabilities_and_nothing_of_our_environment(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_API_KEY", "secret-of-the-agent")
    script = "env; ls /sys/class/net; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/1/status"
    running, output = start("sh", "-c", script)
    assert running.wait(60) == 0
    assert "secret-of-the-agent" not in output.text
    assert "eth" not in output.text
    assert output.text.count("0000000000000000") == 2
    assert "NoNewPrivs:\t1" in output.text


def test_a_flood_of_output_arrives_whole(start: Start) -> None:
    script = "head -c 20000000 /dev/zero | tr '\\0' a; echo; echo the end"
    running, output = start("sh", "-c", script)
    assert running.wait(60) == 0
    assert len(output.said["stdout"]) == 20_000_009
    assert output.said["stdout"].endswith(b"a\nthe end\n")


def test_own_folder_is_writable_and_what_it_leaves_is_ours(
    start: Start, tmp_path: Path
) -> None:
    running, _ = start(
        "sh", "-c", "echo made > /job/file", folders={str(tmp_path): ("/job", "rw")}
    )
    assert running.wait(60) == 0
    assert (tmp_path / "file").read_text() == "made\n"
    assert (tmp_path / "file").stat().st_uid == os.getuid()


def test_a_read_only_folder_cannot_be_written(start: Start, tmp_path: Path) -> None:
    folders = {str(tmp_path): ("/job", "ro")}
    running, output = start("touch", "/job/file", folders=folders)
    assert running.wait(60) != 0
    assert b"Read-only" in output.said["stderr"]


def test_an_allowed_volume_is_mounted(
    start: Start, settings: ContainerSettings
) -> None:
    below = Path(settings.allowed_volumes[0], "data")
    below.mkdir(exist_ok=True)
    (below / "file").write_text("seen")
    running, output = start("cat", "/in/file", volumes={str(below): ("/in", "rw")})
    assert running.wait(60) == 0
    assert output.text == "seen"


def test_a_volume_that_leads_out_of_the_allowed_folder_is_refused(
    start: Start, settings: ContainerSettings, tmp_path: Path
) -> None:
    trap = Path(settings.allowed_volumes[0], "trap")
    trap.symlink_to(tmp_path)
    for host in (trap, tmp_path, Path(settings.allowed_volumes[0], "..")):
        with pytest.raises(WorkerError, match="is not allowed"):
            start("true", volumes={str(host): ("/in", "ro")})


@pytest.mark.parametrize(
    "attempt", ["another job's folder", "the key file", "the agent's environment"]
)
def test_what_is_not_the_jobs_is_not_reached(
    start: Start, tmp_path: Path, attempt: str
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "secret").write_text("secret")
    place = f"/proc/{os.getpid()}/environ" if "agent" in attempt else "/job/../secret"
    if "key" in attempt:
        place = str(tmp_path / "secret")
    folders = {str(tmp_path / "own"): ("/job", "rw")}
    running, output = start("cat", place, folders=folders)
    assert running.wait(60) == 1
    assert output.text == ""


def test_more_memory_than_allowed_is_not_had(start: Start) -> None:
    # Here tail keeps what it has read until a line ends, which never comes.
    running, _ = start(
        "tail", "-n", "1", "/dev/zero", limits=SandboxLimits(memory_mb=64)
    )
    assert running.wait(60) == 137
    assert running.oom_killed


def test_more_processes_than_allowed_are_not_had(start: Start) -> None:
    script = "for i in $(seq 40); do sleep 5 & done; echo all"
    running, output = start("sh", "-c", script, limits=SandboxLimits(processes=16))
    assert running.wait(30) != 0
    assert "all" not in output.text


def test_stop_leaves_nothing_of_a_family_with_a_session_of_its_own(
    engine: ContainerEngine, start: Start
) -> None:
    running, output = start("sh", "-c", FAMILY)
    assert output.heard.wait(60)
    assert sleepers("76543")
    running.stop(1)
    assert sleepers("76543") == []
    assert engine_ids(engine) == []


def test_stop_lets_a_program_clean_up(start: Start) -> None:
    script = "trap 'echo cleaned; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    running, output = start("sh", "-c", script)
    assert output.heard.wait(60)
    running.stop(10)
    assert running.wait(0) == 3
    assert output.text == "ready\ncleaned\n"


def test_a_command_is_run_beside_the_first_one(start: Start) -> None:
    running, output = start("sh", "-c", "echo ready; sleep 600")
    assert output.heard.wait(60)
    beside = Output()
    other = running.exec(("sh", "-c", "echo beside; exit 5"), beside)
    assert other.wait(60) == 5
    assert beside.text == "beside\n"


def test_a_command_beside_is_stopped_alone(start: Start) -> None:
    running, output = start("sh", "-c", "echo ready; sleep 600")
    assert output.heard.wait(60)
    beside = Output()
    other = running.exec(("sh", "-c", "sleep 65432 & echo ready; wait"), beside)
    assert beside.heard.wait(60)
    other.stop(5)
    assert other.wait(0) is not None
    assert sleepers("65432") == []
    assert running.is_running


def test_a_missing_image_is_named_with_the_way_to_get_it(
    engine: ContainerEngine,
) -> None:
    job = ContainerJob("localhost/not-there:9", ("true",), mark="test/1")
    with pytest.raises(WorkerError, match=r"'localhost/not-there:9' is not on") as told:
        engine.start(job, Output())
    assert "docker pull localhost/not-there:9" in told.value.message
    assert "\n" not in told.value.message


def test_a_pull_that_fails_says_why(
    engine: ContainerEngine, settings: ContainerSettings
) -> None:
    puller = ContainerEngine(engine.host, replace(settings, may_pull=True))
    job = ContainerJob("localhost:1/not-there:9", ("true",), mark="test/1")
    with pytest.raises(WorkerError, match=r"is not on this node: .+") as told:
        puller.start(job, Output())
    assert "\n" not in told.value.message
    puller.close()


@pytest.mark.parametrize("command", ["no-such-program", "/bin/no-such-program"])
def test_a_missing_command_is_named_and_leaves_nothing(
    engine: ContainerEngine, start: Start, command: str
) -> None:
    with pytest.raises(WorkerError) as told:
        start(command)
    assert told.value.message == f"command {command!r} is not in image {SHELL!r}"
    assert engine_ids(engine) == []


def test_images_are_listed(engine: ContainerEngine) -> None:
    assert SHELL in engine.images()


OTHER = """
import sys
from corral.worker.container.engine import ContainerEngine, find
from corral.worker.container.job import ContainerJob, ContainerSettings
engine = find(ContainerSettings(may_pull=False))
job = ContainerJob(sys.argv[1], ("sleep", "87654"), mark="node-7/1")
engine.start(job, lambda *_: None)
print("started", flush=True)
sys.stdin.read()
"""


def start_other() -> subprocess.Popen[bytes]:
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, SHELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"started\n"
    return other


def test_containers_of_a_killed_process_are_removed(engine: ContainerEngine) -> None:
    with start_other() as other:
        assert sleepers("87654")
        os.killpg(other.pid, signal.SIGKILL)
        # Its guardian has the same stderr, and ends when the work is done.
        assert other.stderr is not None
        assert other.stderr.read() == b""
    assert sleepers("87654") == []
    assert engine_ids(engine) == []


def test_sweep_removes_what_a_predecessor_left_and_nothing_else(
    engine: ContainerEngine, start: Start
) -> None:
    running, output = start("sh", "-c", "echo ready; sleep 600")
    assert output.heard.wait(60)
    with start_other() as other:
        for guardian in psutil.Process(other.pid).children():
            guardian.kill()
        other.kill()
    assert sleepers("87654")
    assert engine.sweep("node-8/") == []
    assert engine.sweep("node-7/") == ["node-7/1"]
    assert sleepers("87654") == []
    assert engine.sweep("test/") == []
    assert running.wait(0) is None

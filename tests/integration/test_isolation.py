"""Real sandboxes and real families: what a job cannot reach, and how it ends.

Each attempt of a job to get out is a test of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from corral.errors import WorkerError
from corral.worker.isolation import Level, SandboxLimits, best_level, cgroup, start
from tests.unit.worker.isolation.scene import (
    PYTHON,
    Heard,
    are_gone,
    family,
    has_no_groups,
    job,
    new_token,
    run,
    shell,
    sleepers,
)

ROOT = Path(__file__).parents[2]
SANDBOX = Level.SANDBOX
LEVELS = pytest.mark.parametrize("level", list(Level))


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    if best_level() is not SANDBOX:
        pytest.skip("no sandbox here: bubblewrap is missing, or the kernel forbids it")


def test_a_job_cannot_read_another_jobs_folder(tmp_path: Path) -> None:
    other = shell(tmp_path, "echo private > result; echo up; sleep 600")
    heard = Heard()
    running = start(other, heard, SANDBOX)
    try:
        heard.await_lines(1)
        secret = other.folder / "result"
        assert secret.read_text() == "private\n"
        _, spied, _ = run(shell(tmp_path, f"cat {secret}; ls {tmp_path}"), SANDBOX)
        assert "private" not in spied.text
        assert other.folder.parent.name not in spied.text
        assert b"No such file" in spied.stderr
    finally:
        running.stop(0)


def test_a_job_cannot_write_to_another_jobs_folder(tmp_path: Path) -> None:
    other = job(tmp_path, "true")
    code, _, _ = run(shell(tmp_path, f"echo bad > {other.folder}/planted"), SANDBOX)
    assert code != 0
    assert not list(other.folder.iterdir())


@pytest.mark.parametrize("is_shown", [False, True], ids=["elsewhere", "in-a-cache"])
def test_a_job_cannot_read_the_agents_key_file(tmp_path: Path, is_shown: bool) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    key = data / "credential.json"
    key.write_text("corral-key")
    key.chmod(0o644)
    tmp_path.chmod(0o755)
    shown = (tmp_path,) if is_shown else ()
    spy = shell(data, f"cat {key}; true", readable=shown, hidden=(data,))
    code, heard, _ = run(spy, SANDBOX)
    assert code == 0
    assert "corral-key" not in heard.text
    assert b"No such file" in heard.stderr


def test_a_job_cannot_read_the_agents_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(
        ["sleep", "600"], env={**os.environ, "CORRAL_API_KEY": "corral-key"}
    ) as agent:
        monkeypatch.setenv("CORRAL_API_KEY", "corral-key")
        script = f"env; cat /proc/{agent.pid}/environ; cat /proc/[0-9]*/environ"
        _, heard, _ = run(shell(tmp_path, script), SANDBOX)
        agent.kill()
    assert "corral-key" not in heard.text
    assert f"/proc/{agent.pid}/environ: No such file".encode() in heard.stderr


@pytest.mark.spec("D22", "D16")
def test_a_job_cannot_use_more_memory_than_its_limit(tmp_path: Path) -> None:
    eat = "kept = bytearray(400 << 20); print(len(kept))"
    greedy = job(tmp_path, PYTHON, "-c", eat, limits=SandboxLimits(memory_mb=100))
    code, heard, running = run(greedy, SANDBOX)
    assert code != 0
    assert heard.text == ""
    if any("memory" in parent.controllers for parent in cgroup.parents()):
        assert (code, running.oom_killed) == (128 + signal.SIGKILL, True)
        assert running.peak_memory_mb <= 100


def test_many_small_processes_share_one_memory_limit(tmp_path: Path) -> None:
    if not any("memory" in parent.controllers for parent in cgroup.parents()):
        pytest.skip("no control group for memory can be made here")
    eat = f"{PYTHON} -c 'kept = bytearray(60 << 20); input()'"
    script = (
        f"mkfifo gate; for i in 1 2 3 4; do {eat} < gate & done; sleep 3 > gate; wait"
    )
    _, _, running = run(
        shell(tmp_path, script, limits=SandboxLimits(memory_mb=150)), SANDBOX
    )
    assert running.oom_killed


def test_a_job_cannot_change_the_system(tmp_path: Path) -> None:
    places = "/ /usr /etc /opt /sys /run /root"
    script = f"for d in {places}; do touch $d/x 2>/dev/null && echo $d; done"
    _, heard, _ = run(shell(tmp_path, script), SANDBOX)
    assert heard.text == ""


def test_a_job_finds_no_sockets_of_the_machine(tmp_path: Path) -> None:
    script = "ls -A /run /var/run /home /root /srv /mnt 2>/dev/null; true"
    _, heard, _ = run(shell(tmp_path, script), SANDBOX)
    words = set(heard.text.split())
    # Our launcher, and the way to the Python it runs with.
    assert words - {"/run:", "/root:", "/home:", "corral"} <= set(PYTHON.split("/"))


def test_a_job_has_no_capabilities_and_gains_none(tmp_path: Path) -> None:
    _, heard, _ = run(shell(tmp_path, "cat /proc/self/status; id -u"), SANDBOX)
    facts = dict(
        line.split(":\t") for line in heard.text.splitlines()[:-1] if ":\t" in line
    )
    assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == 0
    assert facts["NoNewPrivs"] == "1"
    assert heard.text.splitlines()[-1] != "0"


def test_a_job_cannot_inject_a_library_into_what_starts_it(tmp_path: Path) -> None:
    evil = {"LD_PRELOAD": "/tmp/evil.so", "PYTHONPATH": "/tmp", "BASH_ENV": "/tmp/x"}
    here = shell(tmp_path, "cat /proc/1/environ; cat /proc/1/cmdline", environment=evil)
    _, heard, _ = run(here, SANDBOX)
    assert "evil" not in heard.text
    # The shell and its two programs complain, and nothing before them.
    assert heard.stderr.count(b"evil.so") == 3


def test_without_network_only_loopback_is_there(tmp_path: Path) -> None:
    here = shell(tmp_path, "tail -n +3 /proc/net/dev | cut -d: -f1")
    assert run(here, SANDBOX)[1].text.split() == ["lo"]


def test_temporary_folder_and_shared_memory_are_private_and_usable(
    tmp_path: Path,
) -> None:
    code = (
        "import multiprocessing, tempfile, os\n"
        "from multiprocessing import shared_memory\n"
        "multiprocessing.Lock()\n"
        "shared_memory.SharedMemory(create=True, size=10).unlink()\n"
        "open('/tmp/mine', 'w').close(); open(os.environ['HOME'] + '/mine', 'w')\n"
        "print(tempfile.gettempdir())\n"
    )
    here = job(tmp_path, PYTHON, "-W", "ignore", "-c", code)
    status, heard, _ = run(here, SANDBOX)
    assert (status, heard.stderr) == (0, b"")
    assert heard.text.strip() == str(here.temporary)
    assert (here.temporary / "mine").exists()
    assert not Path("/tmp/mine").exists()


def test_what_a_job_leaves_can_be_read_and_removed(tmp_path: Path) -> None:
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir(mode=0o700)
    script = f"mkdir -m 700 {artifacts}/d; umask 077; echo 42 > {artifacts}/d/file"
    assert run(shell(tmp_path, script, writable=(artifacts,)), SANDBOX)[0] == 0
    assert (artifacts / "d" / "file").read_text() == "42\n"
    (artifacts / "d" / "file").unlink()
    (artifacts / "d").rmdir()


def test_processor_time_is_limited(tmp_path: Path) -> None:
    if not any("cpu" in parent.controllers for parent in cgroup.parents()):
        pytest.skip("no control group for processors can be made here")
    burn = (
        "import time\n"
        "began, used = time.monotonic(), time.process_time()\n"
        "while time.process_time() < used + 0.2: pass\n"
        "print(time.monotonic() - began)\n"
    )
    here = job(tmp_path, PYTHON, "-c", burn, limits=SandboxLimits(cpus=0.2))
    assert float(run(here, SANDBOX)[1].text) > 0.5


def test_another_command_enters_the_sandbox(tmp_path: Path) -> None:
    heard, other, token = Heard(), Heard(), new_token()
    here = shell(tmp_path, "echo mine > /tmp/note; echo up; sleep 600")
    running = start(here, heard, SANDBOX)
    heard.await_lines(1)
    script = f"cat /tmp/note; id -u; echo $HOME; ls {tmp_path}; exec sleep {token}"
    beside = running.exec(["sh", "-c", script], other)
    lines = other.await_lines(4)
    assert lines[0] == "mine"
    assert lines[1] == str(here.folder.stat().st_uid)
    assert lines[2:] == [str(here.home), here.folder.parent.name]
    running.stop(0)
    assert beside.wait(60) is not None
    assert are_gone(token)


def test_everyone_in_a_sandbox_gets_the_grace(tmp_path: Path) -> None:
    child = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    heard = Heard()
    running = start(shell(tmp_path, f'sh -c "{child}" & sleep 600'), heard, SANDBOX)
    heard.await_lines(1)
    running.stop(grace_s=10)
    assert running.wait(30) == 128 + signal.SIGTERM
    assert heard.text.splitlines() == ["up", "saved"]


@LEVELS
@pytest.mark.spec("D16")
def test_no_process_of_a_family_remains_after_a_stop(
    tmp_path: Path, level: Level
) -> None:
    token, heard = new_token(), Heard()
    running = start(shell(tmp_path, family(token)), heard, level)
    heard.await_lines(3)
    assert len(sleepers(token)) >= 3
    running.stop(grace_s=30)
    assert are_gone(token)
    assert has_no_groups(os.getpid())


@LEVELS
def test_no_process_of_a_family_remains_when_its_caller_is_killed(
    tmp_path: Path, level: Level
) -> None:
    token = new_token()
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    caller = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.unit.worker.isolation.caller",
            level.value,
            token,
            str(tmp_path),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    with caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"up\n"
        kin = [*sleepers(token), *psutil.Process(caller.pid).children(recursive=True)]
        assert len(kin) >= 4
        caller.kill()
        caller.wait()
        _, alive = psutil.wait_procs(kin, timeout=60)
        # The last process removes the groups just before it goes.
        assert not alive
        assert has_no_groups(caller.pid)


@LEVELS
def test_no_process_of_a_family_remains_when_its_guardian_is_killed(
    tmp_path: Path, level: Level
) -> None:
    token, heard = new_token(), Heard()
    running = start(shell(tmp_path, family(token)), heard, level)
    heard.await_lines(3)
    guardian = psutil.Process(running.pid).parent()
    assert guardian is not None
    guardian.kill()
    assert running.wait(60) == 128 + signal.SIGKILL
    assert running.is_lost
    assert are_gone(token)
    assert has_no_groups(os.getpid())


def test_a_sandbox_that_is_killed_is_not_the_jobs_own_end(tmp_path: Path) -> None:
    heard = Heard()
    running = start(shell(tmp_path, "echo up; sleep 600"), heard, SANDBOX)
    heard.await_lines(1)
    psutil.Process(running.pid).kill()
    assert running.wait(60) == 128 + signal.SIGKILL
    assert running.is_lost


def test_a_job_that_kills_itself_has_ended_by_itself(tmp_path: Path) -> None:
    running = start(shell(tmp_path, "kill -9 $$"), Heard(), SANDBOX)
    assert running.wait(60) == 128 + signal.SIGKILL
    assert not running.is_lost


# Killed itself, or the first process inside, of which it tells by its exit code.
@pytest.mark.parametrize("end", ["kill -9 $$", "exit 137"], ids=["outer", "inner"])
def test_a_sandbox_killed_before_its_command_runs_is_lost_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    wrapper = folder / "bwrap"
    wrapper.write_text(f"#!/bin/sh\n{end}\n")
    wrapper.chmod(0o755)
    asked = shell(tmp_path, "true")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(WorkerError, match="killed before it could") as failed:
        start(asked, Heard(), SANDBOX)
    assert failed.value.details["lost"]

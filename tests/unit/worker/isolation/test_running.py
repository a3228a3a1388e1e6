"""A job's life at the level any Linux allows: output, end, limits, failures."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from pathlib import Path

import psutil
import pytest

from corral.errors import WorkerError
from corral.worker.isolation import Level, SandboxLimits, start
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
)

PROCESS = Level.PROCESS


def test_output_of_both_streams_and_the_exit_code_come_back(tmp_path: Path) -> None:
    code, heard, running = run(
        shell(tmp_path, "echo out; echo err >&2; exit 7"), PROCESS
    )
    assert (code, heard.stdout, heard.stderr) == (7, b"out\n", b"err\n")
    assert (running.isolation, running.oom_killed) == ("process", False)
    assert running.peak_memory_mb > 0


def test_death_by_a_signal_reads_as_shells_say_it(tmp_path: Path) -> None:
    assert run(shell(tmp_path, "kill -SEGV $$"), PROCESS)[0] == 128 + signal.SIGSEGV


def test_a_command_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    for name in ("no-such-program", "./no-such-file"):
        with pytest.raises(WorkerError) as caught:
            start(job(tmp_path, name), Heard(), PROCESS)
        assert caught.value.message == f"command not found: {name}"


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    here = job(tmp_path, "./notes.txt")
    (here.folder / "notes.txt").touch(mode=0o644)
    with pytest.raises(WorkerError, match=r"not executable: ./notes.txt"):
        start(here, Heard(), PROCESS)


def test_a_script_whose_interpreter_is_missing_says_so(tmp_path: Path) -> None:
    here = job(tmp_path, "./run")
    (here.folder / "run").write_text("#!/no/such/interpreter\n")
    (here.folder / "run").chmod(0o755)
    code, heard, _ = run(here, PROCESS)
    assert code == 126
    assert b"interpreter is not there" in heard.stderr


def test_the_jobs_signals_are_those_of_a_fresh_program(tmp_path: Path) -> None:
    _, heard, _ = run(shell(tmp_path, "grep SigIgn /proc/self/status"), PROCESS)
    # Signals 32 and 33 are the C library's own: no program of ours can change them.
    assert int(heard.text.split()[1], 16) & ~(0b11 << 31) == 0


@pytest.mark.parametrize("ours", [0, 40])
def test_no_file_of_ours_is_open_in_the_job(tmp_path: Path, ours: int) -> None:
    """However many we have: the more, the higher the numbers of those it is given."""
    with contextlib.ExitStack() as stack:
        for _ in range(ours):
            stack.enter_context(open(os.devnull, "rb"))
        _, heard, _ = run(job(tmp_path, "ls", "/proc/self/fd"), PROCESS)
    assert heard.text.split() == ["0", "1", "2", "3"]  # the last is the listing


def test_a_hundred_megabytes_pass_without_filling_memory(tmp_path: Path) -> None:
    count, before = 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def take(_: str, data: bytes) -> None:
        nonlocal count
        count += len(data)

    running = start(
        job(tmp_path, "head", "-c", "100000000", "/dev/zero"), take, PROCESS
    )
    assert running.wait(60) == 0
    assert count == 100_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_a_slow_reader_holds_the_job_back_and_loses_nothing(tmp_path: Path) -> None:
    gate, got = threading.Event(), bytearray()

    def take(_: str, data: bytes) -> None:
        gate.wait(30)
        got.extend(data)

    running = start(job(tmp_path, "head", "-c", "5000000", "/dev/zero"), take, PROCESS)
    assert running.wait(0.3) is None
    gate.set()
    assert running.wait(30) == 0
    assert len(got) == 5_000_000


def test_a_job_that_floods_a_stuck_reader_can_be_stopped(tmp_path: Path) -> None:
    gate = threading.Event()

    def take(_: str, data: bytes) -> None:
        gate.wait(30)

    running = start(job(tmp_path, "yes"), take, PROCESS)
    running.stop(grace_s=30.0)
    assert not running.is_running
    gate.set()
    assert running.wait(30) == 128 + signal.SIGTERM


def test_what_the_main_process_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    token = new_token()
    script = f"(setsid -f sh -c 'echo up; exec sleep {token}'); read line < /dev/zero"
    heard = Heard()
    running = start(shell(tmp_path, f"{script} & exit 0"), heard, PROCESS)
    assert running.wait(30) == 0
    assert are_gone(token)


def test_everyone_gets_the_grace_also_when_the_shell_ends_first(tmp_path: Path) -> None:
    child = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    heard = Heard()
    running = start(shell(tmp_path, f'sh -c "{child}" & sleep 600'), heard, PROCESS)
    heard.await_lines(1)
    running.stop(grace_s=10)
    assert running.wait(30) == 128 + signal.SIGTERM
    assert heard.text.splitlines() == ["up", "saved"]


def test_a_job_that_ignores_the_request_is_killed_after_the_grace(
    tmp_path: Path,
) -> None:
    heard = Heard()
    script = "trap '' TERM; echo up; while :; do sleep 0.02; done"
    running = start(shell(tmp_path, script), heard, PROCESS)
    heard.await_lines(1)
    running.stop(grace_s=0.2)
    assert running.wait(30) == 128 + signal.SIGKILL


def test_stopping_a_job_twice_or_after_its_end_is_nothing(tmp_path: Path) -> None:
    running = start(shell(tmp_path, "exit 3"), Heard(), PROCESS)
    assert running.wait(30) == 3
    running.stop(0)
    running.stop(0)
    running.signal(signal.SIGUSR1)
    assert running.wait(30) == 3


def test_a_signal_reaches_the_whole_job(tmp_path: Path) -> None:
    heard = Heard()
    script = "trap 'echo heard; exit 0' USR1; echo up; while :; do sleep 0.02; done"
    two = f'sh -c "{script}" & {script}'
    running = start(shell(tmp_path, two), heard, PROCESS)
    heard.await_lines(2)
    running.signal(signal.SIGUSR1)
    heard.await_lines(3)
    assert running.wait(30) == 0


def test_files_do_not_grow_beyond_their_limit(tmp_path: Path) -> None:
    here = shell(
        tmp_path,
        "head -c 5000000 /dev/zero > big",
        limits=SandboxLimits(file_size_mb=1),
    )
    code, _, _ = run(here, PROCESS)
    assert code != 0
    assert (here.folder / "big").stat().st_size == 1 << 20


def test_processes_are_limited(tmp_path: Path) -> None:
    script = "for i in $(seq 40); do sleep 600 & done; echo all of them"
    here = shell(tmp_path, script, limits=SandboxLimits(processes=8))
    code, heard, _ = run(here, PROCESS)
    assert code != 0
    assert "all of them" not in heard.text


def test_memory_is_limited_without_control_groups_too(tmp_path: Path) -> None:
    eat = "import time; kept = bytearray(400 << 20); print(len(kept)); time.sleep(600)"
    for gpus in ((), ("0",)):  # by the kernel, and by the guardian's own eyes
        here = job(
            tmp_path, PYTHON, "-c", eat, limits=SandboxLimits(memory_mb=100), gpus=gpus
        )
        running = start(here, Heard(), PROCESS, parents=())
        assert running.wait(30) not in (None, 0)
        assert running.oom_killed is bool(gpus)


def test_processors_are_limited_without_control_groups_too(tmp_path: Path) -> None:
    count = "import os; print(len(os.sched_getaffinity(0)))"
    heard = Heard()
    here = job(tmp_path, PYTHON, "-c", count, limits=SandboxLimits(cpus=0.5))
    assert start(here, heard, PROCESS, parents=()).wait(30) == 0
    assert heard.text.split() == ["1"]


def test_nothing_remains_when_the_guardian_is_killed(tmp_path: Path) -> None:
    token, heard = new_token(), Heard()
    # Without groups it is found by its mark, so this family keeps its environment.
    script = family(token).replace("env -i ", "")
    running = start(shell(tmp_path, script), heard, PROCESS, parents=())
    heard.await_lines(3)
    psutil.Process(running.pid).parent().kill()  # type: ignore[union-attr]
    assert running.wait(60) == 128 + signal.SIGKILL
    assert are_gone(token)


def test_no_control_group_is_left(tmp_path: Path) -> None:
    run(
        shell(tmp_path, "true", limits=SandboxLimits(memory_mb=64, processes=9)),
        PROCESS,
    )
    assert has_no_groups(os.getpid())


def test_another_command_runs_beside_the_job_and_ends_with_it(tmp_path: Path) -> None:
    token, heard, other = new_token(), Heard(), Heard()
    here = shell(tmp_path, "echo up; sleep 600", environment={"NAME": "mine"})
    running = start(here, heard, PROCESS)
    heard.await_lines(1)
    beside = running.exec(["sh", "-c", f"echo $NAME; pwd; exec sleep {token}"], other)
    assert other.await_lines(2) == ["mine", str(here.folder)]
    with pytest.raises(WorkerError, match="command not found"):
        running.exec(["no-such-program"], other)
    assert running.wait(0) is None
    running.stop(0)
    assert beside.wait(60) is not None
    assert are_gone(token)
    with pytest.raises(WorkerError, match="has ended"):
        running.exec(["true"], other)

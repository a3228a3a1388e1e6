"""Disks, memory, ports, versions and clocks: what is well, tight or wrong."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from corral.doctor import machine
from corral.doctor.check import CheckStatus, ok
from corral.doctor.machine import Disk, Memory, Port, judge_clock
from corral.doctor.manager import skew

GB = 1e9


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        (Disk("/d", ("home",), 50 * GB, 100 * GB), CheckStatus.OK),
        (Disk("/d", ("home",), 9 * GB, 100 * GB), CheckStatus.WARN),
        (Disk("/d", ("home",), 4 * GB, 100 * GB), CheckStatus.PROBLEM),
        (Disk("/d", ("home",), 0.9 * GB, 2 * GB), CheckStatus.PROBLEM),
        (Disk("/d", ("home",), 0, 0), CheckStatus.PROBLEM),
        (Disk("/d", ("temp",), 50 * GB, 100 * GB, "Read-only"), CheckStatus.PROBLEM),
        (Disk("/d", (), 50 * GB, 100 * GB, free_inodes=0.01), CheckStatus.PROBLEM),
    ],
)
def test_a_disk_is_judged_by_share_and_by_size(
    told: Disk, verdict: CheckStatus
) -> None:
    assert machine.judge_disk(told).verdict is verdict


def test_folders_on_one_disk_are_one_line(tmp_path: Path) -> None:
    places = {"home": tmp_path / "not" / "yet", "temp": tmp_path}
    (found,) = machine.look_disks(places)
    assert found.uses == ("home", "temp")
    assert found.path == str(tmp_path)
    assert found.refusal is None


def test_a_folder_that_takes_no_file_says_why() -> None:
    (found,) = machine.look_disks({"home": Path("/proc")})
    assert found.refusal is not None
    assert machine.judge_disk(found).verdict is CheckStatus.PROBLEM


def test_memory_that_runs_out_is_told() -> None:
    def verdicts(available: float, shared: float | None) -> list[CheckStatus]:
        told = Memory(available * GB, 100 * GB, shared)
        return [line.verdict for line in machine.judge_memory(told)]

    assert verdicts(50, 8 * GB) == [CheckStatus.OK]
    assert verdicts(8, None) == [CheckStatus.WARN]
    assert verdicts(2, None) == [CheckStatus.PROBLEM]
    assert verdicts(50, 1e6) == [CheckStatus.OK, CheckStatus.WARN]


def test_whoever_has_a_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        held = machine.look_port("127.0.0.1", number)
        ours = machine.look_port("127.0.0.1", number, frozenset({os.getpid()}))
    assert f"pid {os.getpid()}" in str(held.holder)
    assert machine.judge_manager_port(ours).verdict is CheckStatus.OK
    stranger = Port(80, "nginx, pid 7")
    assert machine.judge_manager_port(stranger).verdict is CheckStatus.PROBLEM
    assert "nginx, pid 7" in machine.judge_manager_port(stranger).found
    assert machine.look_port("127.0.0.1", number).holder is None
    nowhere = machine.look_port("203.0.113.9", number)
    assert machine.judge_manager_port(nowhere).verdict is CheckStatus.PROBLEM


def test_ports_for_workers_are_enough_while_one_is_left() -> None:
    free, theirs, ours = Port(1), Port(2, "x"), Port(3, "python", is_ours=True)
    assert machine.judge_worker_ports([free, ours]).verdict is CheckStatus.OK
    assert machine.judge_worker_ports([free, theirs]).verdict is CheckStatus.WARN
    assert machine.judge_worker_ports([ours, theirs]).verdict is CheckStatus.PROBLEM


def test_programs_that_are_missing_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    line = machine.git()
    assert line.verdict is CheckStatus.WARN
    assert line.fix == "install git"
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\necho git version 2\n")
    program.chmod(0o755)
    assert machine.git() == ok("git", "git version 2")


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        ("1.4.0", None),
        (None, None),
        ("1.4.2", CheckStatus.OK),
        ("1.5.0", CheckStatus.WARN),
        ("1.6.0", CheckStatus.PROBLEM),
        ("2.4.0", CheckStatus.PROBLEM),
        ("of our own", CheckStatus.PROBLEM),
    ],
)
def test_one_minor_version_apart_is_tolerated(
    theirs: str | None, verdict: CheckStatus | None
) -> None:
    line = skew("node a", theirs, "1.4.0")
    assert (line and line.verdict) is verdict


@pytest.mark.parametrize(
    ("ahead_s", "verdict"),
    [(0.3, CheckStatus.OK), (-5.0, CheckStatus.WARN), (500.0, CheckStatus.PROBLEM)],
)
def test_clocks_that_differ_are_told(ahead_s: float, verdict: CheckStatus) -> None:
    assert judge_clock("the manager", ahead_s, 0.1).verdict is verdict
    # A slow answer is no proof.
    assert judge_clock("the manager", ahead_s, 600.0).verdict is CheckStatus.OK

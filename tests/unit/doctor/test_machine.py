"""Disks, memory, ports, versions and clocks: what is well, tight or wrong."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from corral.doctor.judge import machine as judge
from corral.doctor.judge.machine import Disk, Memory, Port, Tool
from corral.doctor.judge.manager import clock
from corral.doctor.judge.version import skew
from corral.doctor.look import machine as look
from corral.doctor.result import Verdict

GB = 1e9


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        (Disk("/d", ("home",), 50 * GB, 100 * GB), Verdict.OK),
        (Disk("/d", ("home",), 9 * GB, 100 * GB), Verdict.WARN),
        (Disk("/d", ("home",), 4 * GB, 100 * GB), Verdict.PROBLEM),
        (Disk("/d", ("home",), 0.9 * GB, 2 * GB), Verdict.PROBLEM),
        (Disk("/d", ("home",), 0, 0), Verdict.PROBLEM),
        (Disk("/d", ("temp",), 50 * GB, 100 * GB, "Read-only"), Verdict.PROBLEM),
        (Disk("/d", (), 50 * GB, 100 * GB, free_inodes=0.01), Verdict.PROBLEM),
    ],
)
def test_a_disk_is_judged_by_share_and_by_size(told: Disk, verdict: Verdict) -> None:
    assert judge.disk(told).verdict is verdict


def test_folders_on_one_disk_are_one_line(tmp_path: Path) -> None:
    places = {"home": tmp_path / "not" / "yet", "temp": tmp_path}
    (found,) = look.disks(places)
    assert found.uses == ("home", "temp")
    assert found.path == str(tmp_path)
    assert found.refusal is None


def test_a_folder_that_takes_no_file_says_why() -> None:
    (found,) = look.disks({"home": Path("/proc")})
    assert found.refusal is not None
    assert judge.disk(found).verdict is Verdict.PROBLEM


def test_memory_that_runs_out_is_told() -> None:
    def verdicts(available: float, shared: float | None) -> list[Verdict]:
        told = Memory(available * GB, 100 * GB, shared)
        return [line.verdict for line in judge.memory(told)]

    assert verdicts(50, 8 * GB) == [Verdict.OK]
    assert verdicts(8, None) == [Verdict.WARN]
    assert verdicts(2, None) == [Verdict.PROBLEM]
    assert verdicts(50, 1e6) == [Verdict.OK, Verdict.WARN]


def test_whoever_has_a_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        held = look.port("127.0.0.1", number)
        ours = look.port("127.0.0.1", number, frozenset({os.getpid()}))
    assert f"pid {os.getpid()}" in str(held.holder)
    assert judge.manager_port(ours).verdict is Verdict.OK
    stranger = Port(80, "nginx, pid 7")
    assert judge.manager_port(stranger).verdict is Verdict.PROBLEM
    assert "nginx, pid 7" in judge.manager_port(stranger).found
    assert look.port("127.0.0.1", number).holder is None
    nowhere = look.port("203.0.113.9", number)
    assert judge.manager_port(nowhere).verdict is Verdict.PROBLEM


def test_ports_for_workers_are_enough_while_one_is_left() -> None:
    free, theirs, ours = Port(1), Port(2, "x"), Port(3, "python", is_ours=True)
    assert judge.worker_ports([free, ours]).verdict is Verdict.OK
    assert judge.worker_ports([free, theirs]).verdict is Verdict.WARN
    assert judge.worker_ports([ours, theirs]).verdict is Verdict.PROBLEM


def test_programs_that_are_missing_are_a_warning() -> None:
    assert judge.tool(Tool("git", "git 2")).verdict is Verdict.OK
    line = judge.tool(look.git())
    assert line.verdict in (Verdict.OK, Verdict.WARN)
    assert judge.tool(Tool("git", lack="none", fix="install git")).fix == "install git"


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        ("1.4.0", None),
        (None, None),
        ("1.4.2", Verdict.OK),
        ("1.5.0", Verdict.WARN),
        ("1.6.0", Verdict.PROBLEM),
        ("2.4.0", Verdict.PROBLEM),
        ("of our own", Verdict.PROBLEM),
    ],
)
def test_one_minor_version_apart_is_tolerated(
    theirs: str | None, verdict: Verdict | None
) -> None:
    line = skew("node a", theirs, "1.4.0")
    assert (line and line.verdict) is verdict


@pytest.mark.parametrize(
    ("ahead_s", "verdict"),
    [(0.3, Verdict.OK), (-5.0, Verdict.WARN), (500.0, Verdict.PROBLEM)],
)
def test_clocks_that_differ_are_told(ahead_s: float, verdict: Verdict) -> None:
    assert clock("the manager", ahead_s, 0.1).verdict is verdict
    # A slow answer is no proof.
    assert clock("the manager", ahead_s, 600.0).verdict is Verdict.OK

"""Control groups: what is written, and what is left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from corral.worker.isolation import SandboxLimits, cgroup
from corral.worker.isolation.cgroup import Parent

ALL = frozenset({"memory", "pids", "cpu"})
LIMITS = SandboxLimits(memory_mb=512, cpus=1.5, processes=64)


def test_version_2_limits() -> None:
    groups = cgroup.plan((Parent(Path("/cg"), 2, ALL),), LIMITS, wrappers=2)
    [group] = groups.plain
    assert dict(group["set"]) == {
        "memory.max": str(512 << 20),
        "pids.max": "66",
        "cpu.max": "150000 100000",
    }
    assert dict(group["try"]) == {"memory.swap.max": "0"}
    assert groups.oom_file == group["folder"] + "/memory.events"


def test_version_1_limits_stand_in_a_group_per_controller() -> None:
    where = (
        Parent(Path("/m"), 1, frozenset({"memory"})),
        Parent(Path("/c"), 1, frozenset({"cpu"})),
    )
    groups = cgroup.plan(where, LIMITS, wrappers=0)
    memory, cpu = groups.plain
    assert dict(memory["set"]) == {"memory.limit_in_bytes": str(512 << 20)}
    assert dict(cpu["set"])["cpu.cfs_quota_us"] == "150000"
    assert groups.controllers == {"memory", "cpu"}


def test_no_limits_write_nothing() -> None:
    groups = cgroup.plan((Parent(Path("/cg"), 2, ALL),), SandboxLimits(), wrappers=2)
    assert groups.plain[0]["set"] == groups.plain[0]["try"] == []


def test_two_jobs_never_share_a_group() -> None:
    where = (Parent(Path("/cg"), 2, ALL),)
    names = {cgroup.plan(where, LIMITS, 0).plain[0]["folder"] for _ in range(100)}
    assert len(names) == 100


def test_a_later_command_joins_and_leaves_the_group_alone() -> None:
    groups = cgroup.plan((Parent(Path("/cg"), 2, ALL),), LIMITS, 0)
    [group] = cgroup.joining(groups)
    assert group["folder"] == groups.plain[0]["folder"]
    assert (group["make"], group["set"], group["try"]) == (False, [], [])


def test_what_a_dead_caller_left_in_its_groups_is_ended() -> None:
    if not (where := cgroup.parents()):
        pytest.skip("no control groups can be made here")
    dead = subprocess.Popen(["true"])
    dead.wait()
    folders = [parent.folder / f"corral-{dead.pid}-left" for parent in where]
    with subprocess.Popen(["sleep", "600"]) as left:
        for folder in folders:
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(left.pid))
        cgroup._sweep(where)
        assert left.wait(60) == -9
    cgroup._sweep(where)
    assert not any(folder.exists() for folder in folders)

"""What a sandbox shows, as planned."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from corral.errors import WorkerError
from corral.worker.isolation import SandboxJob
from corral.worker.isolation.mount import Mount, MountKind, plan
from tests.unit.worker.isolation.scene import job

HOME = Path("/usr")


def by_place(mounts: list[Mount]) -> dict[Path, Mount]:
    return {mount.place: mount for mount in mounts}


@pytest.fixture
def bare(tmp_path: Path) -> SandboxJob:
    made = job(tmp_path, "true")
    made.temporary.mkdir(parents=True)
    return made


def test_nothing_is_writable_but_the_jobs_own_folders(bare: SandboxJob) -> None:
    writable = {m.source for m in plan(bare, HOME) if m.kind is MountKind.WRITE}
    own = {bare.folder, bare.scratch, bare.temporary}
    assert writable == {str(path) for path in own}


def test_homes_and_sockets_are_not_shown(bare: SandboxJob) -> None:
    shown = by_place(plan(bare, HOME))
    for name in ("/", "/root", "/home", "/run", "/var/run", "/var", "/proc", "/mnt"):
        assert Path(name) not in shown


def test_what_lies_deeper_comes_later(bare: SandboxJob) -> None:
    depths = [len(mount.place.parts) for mount in plan(bare, HOME)]
    assert depths == sorted(depths)


def test_a_hidden_folder_is_covered_but_for_the_jobs_own_in_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    own = job(data / "jobs", "true", readable=(tmp_path,), hidden=(data,))
    own.temporary.mkdir(parents=True)
    mounts = plan(own, HOME)
    shown = by_place(mounts)
    assert shown[data].kind is MountKind.EMPTY
    assert shown[own.folder].kind is MountKind.WRITE
    assert mounts.index(shown[tmp_path]) < mounts.index(shown[data])
    assert mounts.index(shown[data]) < mounts.index(shown[own.folder])


def test_a_hidden_file_is_covered_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.key").write_text("secret")
    link = tmp_path / "agent.key"
    link.symlink_to("real.key")
    own = job(tmp_path, "true", readable=(tmp_path,), hidden=(link,))
    own.temporary.mkdir(parents=True)
    shown = by_place(plan(own, HOME))
    assert shown[tmp_path / "real.key"].source == os.devnull


def test_the_python_behind_a_virtual_environment_is_shown(
    bare: SandboxJob, tmp_path: Path
) -> None:
    base = tmp_path / "cpython-3.12"
    (base / "bin").mkdir(parents=True)
    (base / "lib/python3.12").mkdir(parents=True)
    (base / "lib/python3.12/os.py").touch()
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\nversion = 3.12\n")
    shown = by_place(plan(replace(bare, readable=(venv,)), HOME))
    assert shown[base].kind is MountKind.READ


@pytest.mark.parametrize("place", ["/", "/proc", "/proc/1", "/dev/mem", "/run", "/no"])
def test_places_that_cannot_be_given_are_refused(bare: SandboxJob, place: str) -> None:
    with pytest.raises(WorkerError):
        plan(replace(bare, readable=(Path(place),)), HOME)

"""Whose files are whose."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from corral.errors import WorkerError
from corral.worker.isolation import share
from corral.worker.isolation.job_user import User, hand_over
from tests.unit.worker.isolation.scene import job


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_sharing_opens_folders_files_and_programs_for_reading(tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    folder.mkdir(mode=0o700)
    (folder / "data").touch(mode=0o600)
    (folder / "program").touch(mode=0o700)
    (folder / "nowhere").symlink_to("gone")
    share(folder)
    assert mode(folder) & 0o007 == 0o005
    assert mode(folder / "data") & 0o007 == 0o004
    assert mode(folder / "program") & 0o007 == 0o005


def test_a_closed_folder_to_read_is_refused_in_one_line(tmp_path: Path) -> None:
    closed = tmp_path / "cache"
    closed.mkdir(mode=0o700)
    with pytest.raises(WorkerError, match="closed to jobs"):
        hand_over(job(tmp_path, "true", readable=(closed,)), User(1, 1, ()))


def test_a_file_that_a_cache_also_holds_keeps_its_owner(tmp_path: Path) -> None:
    cached = tmp_path / "cached"
    cached.touch()
    own = job(tmp_path, "true")
    own.scratch.mkdir()
    os.link(cached, own.folder / "linked")
    (own.folder / "mine").touch()
    us = os.geteuid()
    user = User(65534, 65534, ()) if us == 0 else User(us, os.getegid(), ())
    hand_over(own, user)
    assert (own.folder / "mine").stat().st_uid == user.uid
    assert cached.stat().st_uid == us

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from corral.worker import temporary
from corral.worker.shared_counters import SharedCells


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_what_the_dead_left_goes_and_what_the_living_have_stays(folder: Path) -> None:
    dead = dead_pid()
    (folder / f"corral-probe-{dead}-a").mkdir()
    (folder / f"corral-probe-{dead}-a" / "file").touch()
    (folder / f"corral-probe-{dead}-b").touch()
    stays = {f"corral-probe-{os.getpid()}-c", f"corral-other-{dead}-d", "corral-probe-"}
    for name in stays:
        (folder / name).touch()
    temporary.forget_dead("probe")
    assert {place.name for place in folder.iterdir()} == stays


def test_cells_of_a_killed_supervisor_are_removed_by_the_next(folder: Path) -> None:
    (folder / f"corral-cell-{dead_pid()}-x").touch()
    cells = SharedCells.create()
    assert [str(place) for place in folder.iterdir()] == [cells.path]
    cells.unlink()


def test_a_name_whose_pid_is_somebody_elses_by_now_is_of_the_dead(folder: Path) -> None:
    left = folder / f"corral-probe-{os.getpid()}-a"
    left.touch()
    os.utime(left, (1_000_000_000, 1_000_000_000))
    temporary.forget_dead("probe")
    assert not left.exists()

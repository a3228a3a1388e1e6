from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from corral.worker.environments.lock import FileLock, acquire, attempt

HOLDER = """
import sys
from pathlib import Path
from corral.worker.environments.lock import attempt
lock = attempt(Path(sys.argv[1]), shared=sys.argv[2] == "shared")
print("held" if lock else "refused", flush=True)
sys.stdin.read()
"""


def elsewhere(path: Path, how: str) -> subprocess.Popen[str]:
    """A process that tries to take the lock and then waits."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def first_word(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def taken(path: Path, *, shared: bool) -> FileLock:
    lock = attempt(path, shared=shared)
    assert lock is not None
    return lock


def test_many_share_and_one_excludes(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "one"
    first, second = taken(path, shared=True), taken(path, shared=True)
    assert attempt(path, shared=False) is None
    first.release()
    second.release()
    alone = taken(path, shared=False)
    assert attempt(path, shared=True) is None
    assert attempt(path, shared=False) is None
    alone.release()


def test_waiting_for_a_lock_ends(tmp_path: Path) -> None:
    lock = taken(tmp_path / "one", shared=False)
    with pytest.raises(TimeoutError, match="one"):
        acquire(tmp_path / "one", shared=True, timeout_s=0.05)
    lock.release()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "one"
    with elsewhere(path, "exclusive") as holder:
        assert first_word(holder) == "held"
        assert attempt(path, shared=True) is None
        holder.kill()
    acquire(path, shared=False, timeout_s=60.0).release()


def test_a_lock_with_a_new_file_is_another_lock_for_nobody(tmp_path: Path) -> None:
    path = tmp_path / "one"
    first = taken(path, shared=False)
    first.forget()
    # Between removal and release somebody makes the file anew; both are not one lock,
    # and whoever opened the old file must not believe to hold the new one.
    second = taken(path, shared=False)
    first.release()
    assert attempt(path, shared=False) is None
    second.forget()
    second.release()
    assert not path.exists()


def test_a_released_lock_is_free_though_a_child_inherited_it(tmp_path: Path) -> None:
    path = tmp_path / "one"
    lock = taken(path, shared=False)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.fd,))
    lock.release()
    taken(path, shared=False).release()
    child.communicate()

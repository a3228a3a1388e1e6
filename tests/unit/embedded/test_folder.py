"""The data folder: who may enter, who holds it, what it remembers."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import corral
from corral.embedded.folder import (
    Folder,
    FolderLock,
    FolderState,
    clear_state,
    load_state,
    save_state,
)
from corral.errors import AlreadyRunning, EmbeddedError
from corral.process.spawn import ProcessIdentity, identity_of

ENV = {**os.environ, "PYTHONPATH": str(Path(corral.__file__).parent.parent)}
HOLD = """
import sys
from pathlib import Path
from corral.embedded.folder import Folder, FolderLock
FolderLock(Folder(Path(sys.argv[1]))).take()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "home")
    made.make()
    return made


@contextmanager
def holder_of(folder: Folder) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder's lock."""
    command = [sys.executable, "-c", HOLD, str(folder.home)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENV
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.kill()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_open_to_their_user_alone(folder: Folder) -> None:
    parts = [folder.home, *(p for p in folder.home.iterdir() if p.is_dir())]
    assert len(parts) > 4
    assert {mode(part) for part in parts} == {0o700}


def test_secret_is_made_once_and_readable_by_its_user_alone(folder: Folder) -> None:
    first = folder.secret("postgres")
    assert len(first) >= 32
    assert folder.secret("postgres") == first
    assert folder.secret("redis") != first
    assert mode(folder.secrets / "postgres.password") == 0o600


def test_own_folder_with_a_lax_mode_is_closed_again(folder: Folder) -> None:
    FolderLock(folder).take()
    folder.home.chmod(0o777)
    folder.make()
    assert mode(folder.home) == 0o700


def test_foreign_folder_that_others_may_write_is_refused_and_left_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    (tmp_path / "theirs").chmod(0o1777)
    with pytest.raises(EmbeddedError, match="written by others"):
        Folder(tmp_path / "theirs").make()
    assert mode(tmp_path / "theirs") == 0o1777


def test_home_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(EmbeddedError, match="cannot be used"):
        Folder(tmp_path / "home").make()


def test_second_start_is_refused_and_told_folder_and_pid(folder: Folder) -> None:
    with holder_of(folder) as holder:
        with pytest.raises(AlreadyRunning) as caught:
            FolderLock(folder).take()
        assert str(folder.home) in caught.value.message
        assert f"pid {holder.pid}" in caught.value.message
        assert "\n" not in caught.value.message
        assert caught.value.pid == holder.pid


def test_lock_of_a_killed_holder_does_not_block(folder: Folder) -> None:
    with holder_of(folder) as holder:
        holder.kill()
        holder.wait()
        FolderLock(folder).take()
    assert (folder.home / "lock").read_text() == str(os.getpid())


def test_released_lock_can_be_taken_again(folder: Folder) -> None:
    lock = FolderLock(folder)
    lock.take()
    lock.release()
    FolderLock(folder).take()


@pytest.mark.parametrize("name", ["x" * 90, "with a space", "ünicode"])
def test_sockets_of_an_awkward_home_go_to_a_short_private_folder(
    tmp_path: Path, name: str
) -> None:
    folder = Folder(tmp_path / name)
    folder.make()
    sockets = folder.socket_folder()
    try:
        assert len(os.fsencode(sockets)) <= 85
        assert mode(sockets) == 0o700
        assert folder.socket_folder() == sockets
        sockets.chmod(0o755)
        another = folder.socket_folder()
        assert another != sockets
        folder.drop_sockets()
        assert not another.exists()
    finally:
        sockets.rmdir()


def test_sockets_of_a_plain_home_stay_inside(tmp_path: Path) -> None:
    folder = Folder(Path("/tmp/corral-home"))
    assert folder.socket_folder() == folder.run


def test_state_is_read_back_as_it_was_saved(folder: Folder) -> None:
    parent = identity_of(os.getpid())
    assert parent is not None
    state = FolderState(
        parent, "http://h:1", "1", True, {"redis": ProcessIdentity(7, 8.5)}, "/c.pem"
    )
    save_state(folder, state)
    assert load_state(folder) == state
    assert state.is_running
    assert mode(folder.home / "state.json") == 0o600
    clear_state(folder)
    assert load_state(folder) is None


def test_state_of_a_parent_whose_pid_was_used_again_is_not_running() -> None:
    assert not FolderState(ProcessIdentity(os.getpid(), 1000.0), "", "").is_running


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"parent": 1}', "\x00"])
def test_broken_state_file_counts_as_none(folder: Folder, text: str) -> None:
    (folder.home / "state.json").write_text(text)
    assert load_state(folder) is None

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from corral.worker.environments import folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    (place / "sub" / "deep").mkdir(parents=True)
    (place / "a.txt").write_text("a")
    (place / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (place / "sub" / "run.sh").chmod(0o755)
    return place


def test_a_copy_can_be_written_and_leaves_the_original_alone(root: Path) -> None:
    (root / "link").symlink_to("sub/run.sh")
    folder.seal(root)
    goal = root.parent / "copy"
    folder.copy(root, goal)
    (goal / "a.txt").write_text("changed")
    (goal / "sub" / "new").write_text("new")
    assert (root / "a.txt").read_text() == "a"
    assert os.readlink(goal / "link") == "sub/run.sh"
    assert os.access(goal / "sub" / "run.sh", os.X_OK)
    assert (goal / "sub" / "deep").is_dir()


def test_a_sealed_folder_gives_nobody_the_right_to_write(root: Path) -> None:
    outside = root.parent / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    (root / "link").symlink_to(outside)
    folder.seal(root)
    inside = [root, *(Path(entry.path) for entry in folder.walk(root))]
    modes = [path.lstat().st_mode for path in inside if not path.is_symlink()]
    assert not [mode for mode in modes if mode & 0o222]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert os.access(root / "sub" / "run.sh", os.X_OK)


def test_a_sealed_folder_can_be_removed(root: Path) -> None:
    folder.seal(root)
    folder.remove(root)
    assert not root.exists()


def test_removing_follows_no_link(root: Path) -> None:
    kept = root.parent / "kept"
    kept.mkdir()
    (kept / "file").write_text("")
    (root / "link").symlink_to(kept)
    (root / "sub" / "link").symlink_to(kept)
    folder.remove(root)
    assert not root.exists()
    assert (kept / "file").exists()


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    folder.remove(tmp_path / "nothing")


def test_a_folder_nested_beyond_every_limit_is_removed(root: Path) -> None:
    # Deeper than Python recurses, and longer than a path may be.
    at = os.open(root, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("name", dir_fd=at)
        below = os.open("name", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    folder.remove(root)
    assert not root.exists()


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("link", "/etc/passwd"),
        ("link", ".."),
        ("link", "../outside"),
        ("sub/link", "../../outside"),
        ("link", "sub/../../outside"),
        ("link", "nothing/../../outside"),
    ],
)
def test_a_link_that_leads_out_is_found(root: Path, name: str, target: str) -> None:
    (root / name).symlink_to(target)
    assert folder.find_stray_link(root) == (name, target)


def test_a_link_that_leads_out_and_back_is_found(root: Path) -> None:
    (root / "link").symlink_to("../place/a.txt")
    assert folder.find_stray_link(root) == ("link", "../place/a.txt")


def test_a_link_that_leads_out_through_another_is_found(root: Path) -> None:
    (root / "here").symlink_to(".")
    (root / "link").symlink_to("here/here/../../outside")
    assert folder.find_stray_link(root) == ("link", "here/here/../../outside")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("link", "a.txt"),
        ("sub/link", "../a.txt"),
        ("sub/deep/link", "../../a.txt"),
        ("link", "nothing"),
        ("link", "link"),
        ("sub/link", ".."),
        ("link", "sub/../sub/deep"),
    ],
)
def test_a_link_that_stays_inside_is_no_stray(
    root: Path, name: str, target: str
) -> None:
    (root / name).symlink_to(target)
    assert folder.find_stray_link(root) is None


def test_a_file_with_two_names_is_measured_once(root: Path) -> None:
    (root / "large").write_bytes(b"x" * 1_000_000)
    alone = folder.measure(root)
    assert alone >= 1_000_000
    os.link(root / "large", root / "sub" / "again")
    assert abs(folder.measure(root) - alone) < 100_000

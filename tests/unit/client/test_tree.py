"""Folders as trees: read, sent where missing, written again; nothing leads out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral.client import Client
from corral.core.tree import CHUNK_BYTES, Tree, TreeFile, TreeLink
from corral.errors import BadRequest, CorralError, InvalidField, TooLarge
from corral.files.read_folder import Changed, TreeReader
from corral.files.tree import load_tree, write_file, write_tree
from corral.files.walk import all_files, open_inside
from tests.unit.client.stand_in import Answer, StandIn, fault


def fill(root: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def restore(digest: str, kept: dict[str, bytes], place: Path) -> Path:
    place.mkdir()
    get = kept.__getitem__
    tree = load_tree(digest, get)
    write_tree(tree, place, lambda file, path: write_file(file, path, get))
    return place


def sent_bytes(manager: StandIn) -> int:
    return sum(len(seen.body) for seen in manager.asked("POST /objects"))


def test_a_folder_comes_back_as_it_was_sent(
    manager: StandIn, client: Client, objects: dict[str, bytes], tmp_path: Path
) -> None:
    source = fill(tmp_path / "s", a=b"", b__c=b"text", d=b"x" * 3 * CHUNK_BYTES + b"y")
    (source / "b" / "c").chmod(0o755)
    (source / "link").symlink_to("b/c")
    odd = os.fsdecode(b"od\xffd")
    (source / odd).write_bytes(b"name")
    (source / ".gitignore").write_text("ignored\n")
    (source / "ignored").write_text("no")
    seen: list[tuple[int, int | None]] = []
    digest = client.upload(source, on_progress=lambda *done: seen.append(done))
    assert seen[-1][0] <= seen[-1][1] == 3 * CHUNK_BYTES + 1 + 8 + 8  # type: ignore[operator]
    assert max(map(len, objects.values())) <= CHUNK_BYTES
    # Three equal chunks are one object.
    assert sent_bytes(manager) < 2 * CHUNK_BYTES
    there = restore(digest, objects, tmp_path / "there")
    names = sorted(p.name for p in there.rglob("*"))
    assert names == sorted([".gitignore", "a", "b", "c", "d", "link", odd])
    assert (there / "d").read_bytes() == (source / "d").read_bytes()
    assert os.access(there / "b" / "c", os.X_OK)
    assert not os.access(there / odd, os.X_OK)
    assert os.readlink(there / "link") == "b/c"


def test_only_what_changed_is_sent_again(
    manager: StandIn, client: Client, objects: dict[str, bytes], tmp_path: Path
) -> None:
    many = {f"f{n}": b"%d" % n for n in range(2000)}
    source = fill(tmp_path / "s", large=os.urandom(1_000_000), **many)
    first = client.upload(source)
    assert len(manager.seen) <= 12, "small files travel together"
    manager.seen.clear()
    assert client.upload(source) == first
    assert not manager.asked("POST /objects")
    (source / "f7").write_bytes(b"another")
    known = set(objects)
    assert client.upload(source) != first
    new = {len(objects[digest]) for digest in objects.keys() - known}
    assert len(new) == 2
    assert 7 in new, "the file and the manifest"


def test_a_broken_upload_goes_on_where_it_was(
    manager: StandIn, client: Client, objects: dict[str, bytes], tmp_path: Path
) -> None:
    source = fill(
        tmp_path / "s", **{f"f{n}": os.urandom(CHUNK_BYTES) for n in range(4)}
    )
    plain, left = manager.answer, [2]

    def answer(seen: Any) -> Answer:
        if seen.path == "/objects":
            left[0] -= 1
            if left[0] < 0:
                return fault("forbidden", 403)
        return plain(seen)

    manager.answer = answer  # type: ignore[method-assign]
    with pytest.raises(CorralError):
        client.upload(source)
    assert len(objects) == 2
    left[0] = 100
    manager.seen.clear()
    client.upload(source)
    assert sent_bytes(manager) < 2 * CHUNK_BYTES + 1000


def test_a_file_that_changes_while_it_is_sent_is_noticed(tmp_path: Path) -> None:
    source = fill(tmp_path, a=b"one")
    reader = TreeReader(source)
    file = reader.file("a")
    (source / "a").write_bytes(b"two")
    with pytest.raises(Changed):
        reader.chunk(file, 0)
    assert reader.chunk(reader.file("a"), 0) == b"two"


def test_an_unchanged_file_is_hashed_once(tmp_path: Path) -> None:
    reader = TreeReader(fill(tmp_path, a=b"one"))
    assert reader.file("a") is reader.file("a")
    (tmp_path / "a").write_bytes(b"two")
    assert reader.file("a").digest == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "missing/../../x"])
def test_a_link_that_leads_out_is_refused_by_name(
    client: Client, tmp_path: Path, target: str
) -> None:
    fill(tmp_path, outside=b"secret")
    source = fill(tmp_path / "s", a=b"x")
    (source / "way").symlink_to(target)
    with pytest.raises(InvalidField, match="way is a link that leads out"):
        client.upload(source)


def test_too_large_a_folder_is_refused_before_it_is_read(
    client: Client, tmp_path: Path
) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(5 << 30)
    with pytest.raises(TooLarge, match=r"\.gitignore"):
        client.upload(tmp_path)


def test_what_came_must_be_what_was_said(tmp_path: Path) -> None:
    good, other = b"good", b"evil"
    digest = hashlib.sha256(good).hexdigest()
    for file in (TreeFile("a", 4, digest), TreeFile("a", 9, digest)):
        with pytest.raises(BadRequest):
            write_file(file, tmp_path / f"x{file.size}", lambda _: other)


def test_links_that_lead_out_together_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    tree = Tree(links=(TreeLink("a/b", ".."), TreeLink("z", "a/b/../x")))
    with pytest.raises(BadRequest, match="leads out"):
        write_tree(tree, root, lambda file, path: None)


def swap_for_link(folder: Path, outside: Path) -> None:
    for entry in folder.iterdir():
        entry.unlink()
    folder.rmdir()
    folder.symlink_to(outside)


def test_no_link_is_followed_even_when_it_comes_late(tmp_path: Path) -> None:
    outside = fill(tmp_path / "outside", key=b"secret")
    root = fill(tmp_path / "root", folder__key=b"mine", plain=b"x")
    assert list(all_files(root, pytest.fail)) == ["plain", "folder/key"]
    with open_inside(root, "folder/key") as file:
        assert file.read() == b"mine"
    swap_for_link(root / "folder", outside)
    with pytest.raises(OSError, match=r"."):
        open_inside(root, "folder/key")
    assert list(all_files(root, pytest.fail)) == ["folder", "plain"]


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: os.symlink("plain", path)], ids=["pipe", "link"]
)
def test_only_plain_files_are_opened(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    fill(tmp_path, plain=b"x")
    make(tmp_path / "odd")
    with pytest.raises(OSError, match=r"."):
        open_inside(tmp_path, "odd")


def test_a_folder_without_end_is_not_walked_to_its_end(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    told: list[str] = []
    assert list(all_files(tmp_path, told.append)) == []
    assert len(told) == 1

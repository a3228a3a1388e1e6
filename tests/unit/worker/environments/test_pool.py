"""Files of uploaded folders on a node: fetched once, shared by trees."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from corral.core.tasks.environment import ArchiveEnvironment
from corral.core.tree import Tree, TreeFile, TreeLink, encode
from corral.errors import EnvironmentFailed, NotFound
from corral.worker.environments.cache import Cache
from corral.worker.environments.policy import EnvironmentPolicy
from corral.worker.environments.prepare import prepare


class Shelf:
    """Objects by digest, and how often each was fetched."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fetched: list[str] = []

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.objects[digest] = data
        return digest

    def tree(self, files: dict[str, bytes], *links: TreeLink) -> str:
        made = [
            TreeFile(name, len(data), self.put(data), name.endswith(".sh"))
            for name, data in files.items()
        ]
        return self.put(encode(Tree(tuple(made), links))[0])

    def fetch(self, digest: str) -> bytes:
        self.fetched.append(digest)
        try:
            return self.objects[digest]
        except KeyError:
            raise NotFound(f"no object {digest}") from None


def read(shelf: Shelf, cache: Cache, digest: str) -> dict[str, bytes]:
    environment = ArchiveEnvironment(digest)
    policy = EnvironmentPolicy()
    with prepare(
        environment, cache=cache, fetch=shelf.fetch, policy=policy, for_runner=False
    ) as made:
        root = made.root
        files = {str(p.relative_to(root)): p for p in root.rglob("*") if p.is_file()}
        assert all(os.access(p, os.W_OK) and p.stat().st_nlink == 1
                   for p in files.values() if not p.is_symlink())  # fmt: skip
        assert all(os.access(p, os.X_OK) == n.endswith(".sh") for n, p in files.items())
        return {name: path.read_bytes() for name, path in files.items()}


def test_a_second_tree_fetches_only_what_the_first_has_not(tmp_path: Path) -> None:
    cache, shelf = Cache(tmp_path / "cache", 1 << 30), Shelf()
    files = {f"d/f{n}": b"%d" % n for n in range(50)} | {"run.sh": b"exit 0", "e": b""}
    first = shelf.tree(files, TreeLink("link", "d/f1"))
    assert read(shelf, cache, first) == {**files, "link": b"1"}
    assert len(shelf.fetched) == 52
    shelf.fetched.clear()
    files["d/f7"] = b"another"
    second = shelf.tree(files)
    assert read(shelf, cache, second) == files
    assert sorted(shelf.fetched) == sorted(
        [second, hashlib.sha256(b"another").hexdigest()]
    )
    assert cache.counters()["unpacks"] == 2


def test_files_of_an_evicted_tree_are_fetched_again(tmp_path: Path) -> None:
    cache, shelf = Cache(tmp_path / "cache", 1), Shelf()
    digest = shelf.tree({"a": b"one"})
    read(shelf, cache, digest)
    cache.evict()
    shelf.fetched.clear()
    assert read(shelf, cache, shelf.tree({"a": b"one", "b": b"two"})) == {
        "a": b"one",
        "b": b"two",
    }
    assert len(shelf.fetched) == 3


@pytest.mark.parametrize("row", [["l", "a", "/etc"], ["f", "../a", 0, "0" * 64, 0]])
def test_a_hostile_tree_leaves_nothing(tmp_path: Path, row: list[object]) -> None:
    import json

    cache, shelf = Cache(tmp_path / "cache", 1 << 30), Shelf()
    text = json.dumps({"corral": "tree", "rows": [row]}, separators=(",", ":"))
    with pytest.raises(EnvironmentFailed, match="no tree of files"):
        read(shelf, cache, shelf.put(text.encode()))
    assert not list((tmp_path / "cache" / "tree").iterdir())


def test_a_missing_file_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    cache, shelf = Cache(tmp_path / "cache", 1 << 30), Shelf()
    digest = shelf.tree({"a": b"one", "b": b"two"})
    del shelf.objects[hashlib.sha256(b"two").hexdigest()]
    with pytest.raises(NotFound):
        read(shelf, cache, digest)
    assert not list((tmp_path / "cache" / "tree").iterdir())

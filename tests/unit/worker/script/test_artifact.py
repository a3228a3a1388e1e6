"""What a script left: what is kept, what is left out, and how that is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from corral.core.tree import Tree
from corral.errors import StoreUnavailable
from corral.worker.script.access import ScriptAccess
from corral.worker.script.artifacts import ArtifactFiles, keep_artifacts
from corral.worker.script.checkpoints import Checkpoint
from corral.worker.script.files import TaskFiles

GIB = 1 << 30


class Kept(TaskFiles):
    """Keeps trees here instead of sending them."""

    def __init__(self, attempt: int = 1) -> None:
        super().__init__(
            ScriptAccess("w", "n", "http://127.0.0.1:1", "k"), "t", attempt
        )
        self.saved: list[tuple[str, Tree, str]] = []
        self.objects: dict[str, bytes] = {}
        self.fault: Exception | None = None

    def save(self, kind: str, tree: Tree, chunks: Any, left_out: str = "") -> None:
        if self.fault is not None:
            raise self.fault
        for file in tree.files:
            for index, digest in enumerate(file.chunks):
                self.objects[digest] = chunks.chunk(file, index)
        self.saved.append((kind, tree, left_out))


def names(told: dict[str, Any]) -> list[str]:
    return [row["name"] for row in told["artifacts"]]


def test_nothing_left_sends_nothing(tmp_path: Path) -> None:
    files = Kept()
    assert keep_artifacts(files, tmp_path, None, (), GIB) == {"artifacts": []}
    assert files.saved == []


def test_patterns_add_files_of_the_working_folder(tmp_path: Path) -> None:
    left, work = tmp_path / "left", tmp_path / "work"
    (work / "out" / "deep").mkdir(parents=True)
    left.mkdir()
    (left / "a.pt").write_text("from the artifacts folder")
    for name in ("a.pt", "b.pt", "out/deep/c", "d.txt"):
        (work / name).write_text(name)
    files = Kept()
    told = keep_artifacts(files, left, work, ("*.pt", "out/"), GIB)
    assert sorted(names(told)) == ["a.pt", "b.pt", "out/deep/c"]
    first = next(row for row in told["artifacts"] if row["name"] == "a.pt")
    assert files.objects[first["digest"]] == b"from the artifacts folder"
    told = keep_artifacts(Kept(), left, None, ("*.pt",), GIB)
    assert "container" in told["left_out"]


def test_what_is_beyond_the_limits_is_left_out_and_said(tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"f{n}").write_bytes(b"x" * 100)
    told = keep_artifacts(Kept(), tmp_path, None, (), 250)
    assert names(told) == ["f0", "f1"]
    assert told["left_out"].startswith("'f2', 'f3', 'f4' left out: more than")
    assert "CORRAL_ARTIFACT_LIMIT_GB" in told["left_out"]
    told = keep_artifacts(Kept(), tmp_path, None, (), GIB, limit_files=3)
    assert names(told) == ["f0", "f1", "f2"]
    assert "more than 3 files" in told["left_out"]


def test_odd_things_are_left_out_one_by_one(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    left = tmp_path / "left"
    (left / "real").mkdir(parents=True)
    (left / "good").write_text("x")
    (left / "real" / "file").write_text("y")
    (left / "inside").symlink_to("real/file")
    (left / "folder").symlink_to("real")
    (left / "absolute").symlink_to(outside)
    (left / "climbing").symlink_to("../outside")
    (left / "dangling").symlink_to("nothing")
    os.mkfifo(left / "pipe")
    (left / os.fsdecode(b"od\xff")).write_text("x")
    (left / "line\nbreak").write_text("x")
    files = Kept()
    told = keep_artifacts(files, left, None, (), GIB)
    assert sorted(names(told)) == ["good", "inside", "real/file"]
    for name in ("absolute", "climbing", "dangling", "folder", "pipe", "break"):
        assert name in told["left_out"], name
    assert "\n" not in told["left_out"]
    assert b"secret" not in files.objects.values()


def test_files_that_cannot_be_sent_do_not_fail_the_task(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    files = Kept()
    files.fault = StoreUnavailable("the disk is full")
    told = keep_artifacts(files, tmp_path, None, (), GIB)
    assert told == {
        "artifacts": [],
        "left_out": "no artifact could be kept: the disk is full",
    }
    told = keep_artifacts(files, tmp_path / "gone", None, (), GIB)
    assert told["artifacts"] == []


def test_a_harvest_reads_a_file_it_renamed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("text")
    (tmp_path / "alias").symlink_to("real")
    harvest = ArtifactFiles(GIB)
    harvest.take(tmp_path, iter(["alias"]))
    (file,) = harvest.tree.files
    assert (file.name, harvest.chunk(file, 0)) == ("alias", b"text")


def test_a_checkpoint_is_saved_when_it_changed_and_not_otherwise(
    tmp_path: Path,
) -> None:
    files = Kept()
    checkpoint = Checkpoint(files, tmp_path, 60, GIB, print)
    assert checkpoint.save() is None
    assert files.saved == [], "there is none yet"
    (tmp_path / "count").write_text("1")
    (tmp_path / "latest").symlink_to("count")
    (tmp_path / "out").symlink_to("/etc")
    assert checkpoint.save() is checkpoint.save() is None
    ((kind, tree, _),) = files.saved
    assert kind == "checkpoint"
    assert [f.name for f in tree.files] == ["count"]
    assert [x.name for x in tree.links] == ["latest"]
    (tmp_path / "count").unlink()
    checkpoint.save()
    assert files.saved[-1][1].files == ()
    files.fault = StoreUnavailable("away")
    (tmp_path / "more").write_text("1")
    assert checkpoint.save() == "the checkpoint was not saved: away"


def test_too_large_a_checkpoint_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    why = Checkpoint(Kept(), tmp_path, 60, 10, print).save()
    assert why is not None
    assert "more than 10 bytes" in why

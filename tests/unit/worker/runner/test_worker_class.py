from __future__ import annotations

from pathlib import Path

import pytest

from corral.errors import WorkerError
from corral.worker import EchoWorker
from corral.worker.runner.worker_class import load_worker_class

HERE = "tests.unit.worker"


@pytest.mark.parametrize(
    "path", ["corral.worker.builtin:EchoWorker", "corral.worker.builtin.EchoWorker"]
)
def test_class_is_found_by_either_spelling(path: str) -> None:
    assert load_worker_class(path) is EchoWorker


def test_module_in_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_this_folder.py").write_text(
        "class Mine:\n    def run(self, payload):\n        return payload\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    assert load_worker_class("module_of_this_folder:Mine").__name__ == "Mine"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (f"{HERE}.broken_import:Any", "No module named 'a_package_nobody_has'"),
        ("no_such_module_at_all:Any", "No module named 'no_such_module_at_all'"),
        (f"{HERE}.sample_workers:Missing", "has no 'Missing'"),
        (f"{HERE}.sample_workers:not_a_class", "is not a class"),
        (f"{HERE}.sample_workers:Empty", "none of the methods"),
        ("JustAName", "module:Class"),
    ],
)
def test_what_cannot_be_used_says_why(path: str, words: str) -> None:
    with pytest.raises(WorkerError, match=words):
        load_worker_class(path)

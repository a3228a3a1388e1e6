"""Files of the folder where Corral is started are not Corral's to import."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from corral.errors import WorkerError
from corral.worker.runner.worker_class import load_worker_class
from tests.acceptance.cluster import Cluster, clean_environment

ROOT = Path(__file__).parents[2]
# What the manager, the agent, supervisors, runners and the command itself import, from
# Python and from elsewhere; whoever imports one of these leaves a file behind.
TAKEN = (
    "celery",
    "email",
    "fastapi",
    "http",
    "httpx",
    "json",
    "kombu",
    "msgspec",
    "psutil",
    "queue",
    "redis",
    "selectors",
    "socket",
    "typer",
    "uvicorn",
)
TRAP = """\
import os
from pathlib import Path
Path(__file__).with_name("sprung").open("a").write(f"{{os.getpid()}} {name}\\n")
raise SystemExit("a file of the current folder was run")
"""
MINE = """\
import json
import sys

class Mine:
    def run(self, payload):
        return {"json": json.__file__, "path": sys.path, "said": payload}
"""


def set_traps(folder: Path) -> Path:
    for name in TAKEN:
        (folder / f"{name}.py").write_text(TRAP.format(name=name))
    return folder / "sprung"


def sprung(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.timeout(180)
def test_added_files_of_the_folder_of_corral_up_are_never_run(tmp_path: Path) -> None:
    """And a worker class of that folder is found all the same."""
    traps = set_traps(tmp_path)
    (tmp_path / "class_of_this_folder.py").write_text(MINE)
    # It starts in its own data folder.
    cluster = Cluster.start(tmp_path, ["class_of_this_folder:Mine=mine"])
    try:
        cluster.serving("mine")
        ran = cluster.corral("run", "mine", '{"a": 1}')
    finally:
        cluster.stop()
    assert sprung(traps) == ""
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["said"] == {"a": 1}
    assert told["path"][-1] == str(tmp_path)
    assert str(tmp_path) not in told["path"][:-1]


@pytest.mark.parametrize("words", [["--version"], ["config", "--json"]])
def test_added_the_command_itself_imports_nothing_from_there(
    tmp_path: Path, words: list[str]
) -> None:
    traps = set_traps(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "corral", *words],
        cwd=tmp_path,
        env=clean_environment(CORRAL_HOME=str(tmp_path / "home")),
        capture_output=True,
        text=True,
    )
    assert (sprung(traps), ran.returncode) == ("", 0), ran.stderr


def test_added_no_child_of_ours_is_started_without_the_safe_path() -> None:
    """`python -m` is written in one place, and in the runner's own."""
    found = {
        str(path.relative_to(ROOT / "src" / "corral"))
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r'"-m"', path.read_text())
    }
    assert found == {
        "process/keep_alive.py",
        "worker/pool/sandbox.py",  # in the folder of the code it runs
        "worker/pool/transport.py",
        "worker/server/program.py",  # llama-server's -m is a model
    }


def test_added_an_installed_module_comes_before_one_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever meant the other is told why it was not found."""
    (tmp_path / "colorsys.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    with pytest.raises(WorkerError, match=r"hides colorsys\.py .* another name"):
        load_worker_class("colorsys:Mine")
    assert sys.path[-1] == os.getcwd()


def test_added_a_missing_class_says_that_the_folder_was_looked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    with pytest.raises(WorkerError, match=f"looked in {re.escape(str(tmp_path))} last"):
        load_worker_class("nobody_has_this:Any")

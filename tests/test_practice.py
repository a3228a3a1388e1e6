"""What those who work on Corral rely on, tried with the tools themselves."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import corral

ROOT = Path(__file__).parent.parent
_AS_EVER = ("--ignore", "D413,D415")


def run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_ours(value: Any) -> bool:
    made: Any = value.fget if isinstance(value, property) else value
    made = inspect.unwrap(getattr(made, "__func__", made))
    return str(getattr(made, "__module__", "")).partition(".")[0] == "corral"


@pytest.mark.spec("D12")
def test_everything_public_is_documented_and_in_google_style() -> None:
    undocumented = []
    for name in corral.__all__:
        thing = getattr(corral, name)
        members = inspect.getmembers(thing) if inspect.isclass(thing) else []
        if inspect.ismodule(thing):
            members = [m for m in vars(thing).items() if inspect.isclass(m[1])]
        elif is_ours(thing) and not inspect.getdoc(thing):
            undocumented.append(name)
        for part, value in members:
            is_call = callable(value) or isinstance(value, property)
            if is_call and not part.startswith("_") and is_ours(value):
                said = inspect.getdoc(value)
                undocumented += [] if said else [f"{name}.{part}"]
    assert undocumented == []
    # The order and the form of its sections, and that they name what is there.
    run("ruff", "check", "--no-cache", "--select", "D405,D41", *_AS_EVER, "src")


@pytest.mark.spec("D17")
def test_nothing_known_to_block_stands_on_the_loop() -> None:
    rooms = [f"src/corral/{room}" for room in ("manager", "store", "api", "client")]
    run(
        "ruff",
        "check",
        "--no-cache",
        "--select",
        "ASYNC",
        "--ignore",
        "ASYNC109",
        *rooms,
    )
    loops = [
        path
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        if "async def" in path.read_text(encoding="utf-8")
    ]
    assert len(loops) > 50


@pytest.mark.spec("D7")
def test_there_are_tests_of_every_kind_and_their_coverage_is_measured(
    tmp_path: Path,
) -> None:
    for kind in ("unit", "contract", "integration", "acceptance", "load"):
        assert list((ROOT / "tests" / kind).rglob("test_*.py")), kind
    told = run(
        *("pytest", "-q", "-p", "no:cacheprovider", "--cov=corral.core"),
        "tests/unit/core/nodes/test_version.py",
        COVERAGE_FILE=str(tmp_path / "coverage"),
    )
    (row,) = [line for line in told.splitlines() if "corral/core/tasks/task.py" in line]
    assert "%" in row


def test_forked_tests_end_as_in_one_process_and_those_of_a_dead_one_fail(
    tmp_path: Path,
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_well.py").write_text(
        "import pytest\n"
        "def test_well(tmp_path): assert not list(tmp_path.iterdir())\n"
        "def test_left_out(): pytest.skip('no card')\n",
        encoding="utf-8",
    )
    (tmp_path / "test_ill.py").write_text(
        "import os\n"
        "def test_wrong(): print('what it said'); assert 1 == 2\n"
        "def test_dies(): os.kill(os.getpid(), 9)\n"
        "def test_behind_it(): pass\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-rfs", "-p", "tests.forks"]
    done = subprocess.run(
        [*command, "--forks", "2", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "3 failed, 1 passed, 1 skipped" in done.stdout
    assert "what it said" in done.stdout
    for name in ("test_dies", "test_behind_it"):
        assert f"{name}: the process that had it died" in done.stdout

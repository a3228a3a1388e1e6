"""The entry: lazy loading, help, completion, exit codes, one-line errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corral.cli.main import Root, app
from corral.cli.terminal.errors import exit_code_of, one_line
from corral.errors import SettingsError, StoreUnavailable, TaskFailed, Unreachable
from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault

HEAVY = {"httpx", "rich", "pydantic", "msgspec", "asyncio", "celery", "sqlalchemy"}
# Those of other files have tests of their own.
OTHERS = {"up", "down", "join", "config", "manager", "agent"}
OURS = sorted(set(Root.table) - OTHERS)


def _python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        timeout=60,
        check=False,
    )


def test_help_loads_no_command_and_nothing_heavy() -> None:
    done = _python(
        "import sys, json, atexit\n"
        "atexit.register(lambda: print(json.dumps(list(sys.modules)), file=sys.stderr))"
        "\nsys.argv = ['corral', '--help']\n"
        "from corral.cli.main import main; main()"
    )
    assert done.returncode == 0
    loaded = {name.split(".")[0] for name in json.loads(done.stderr)}
    assert not loaded & HEAVY
    assert "corral.cli.tasks.run" not in json.loads(done.stderr)
    for name, entry in Root.table.items():
        assert (f"  {name} " in done.stdout) is not entry.is_hidden


@pytest.mark.parametrize("name", OURS)
def test_every_command_has_help(corral: Corral, name: str) -> None:
    ran = corral(name, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: corral {name}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("corral sta", "status"),
        ("corral run --prio", "--priority"),
        ("corral job-type ", "list\nadd\nset\nclear-cache\npause\nresume"),
        ("corral job ", "submit\nstatus\nwait\nclear"),
        ("corral route ", "add\nlist\nremove"),
        ("corral worker re", "restart"),
        ("corral worker launch --no", "--node"),
        ("corral manag", ""),
    ],
)
def test_shell_completes_commands_and_options(words: str, expected: str) -> None:
    shell = {
        "_CORRAL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = CliRunner().invoke(app, env=shell, prog_name="corral")
    assert done.stdout.strip() == expected


def test_near_miss_is_a_usage_error_that_names_the_command(corral: Corral) -> None:
    ran = corral("statsu")
    assert ran.code == 2
    assert "Did you mean 'status'" in ran.err


def test_unreachable_manager_is_one_line_and_exit_code_3(corral: Corral) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    ran = corral("--url", url, "status")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == (
        f"Error: cannot reach Corral at {url}: start it with 'corral up' "
        "or set CORRAL_MANAGER_URL\n"
    )


def test_error_of_the_manager_is_one_line_and_exit_code_1(
    manager: StandIn, corral: Corral
) -> None:
    manager.on(
        "GET /tasks/x", fault("task_not_found", 404, "there is\nno task\x1b[2J x")
    )
    ran = corral("task", "x")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "Error: there is no task [2J x\n"


def test_wrong_key_says_how_to_give_one(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /nodes", fault("unauthenticated", 401, "this key is not known"))
    ran = corral("nodes")
    assert ran.code == 1
    assert "CORRAL_API_KEY" in ran.err


def test_debug_shows_the_traceback(
    manager: StandIn, corral: Corral, capfd: pytest.CaptureFixture[str]
) -> None:
    manager.on("GET /nodes", fault("conflict", 409, "not now"))
    ran = corral("--debug", "nodes")
    assert ran.code == 1
    assert "Traceback" in ran.err + capfd.readouterr().err


def test_fault_nobody_foresaw_is_one_line_too() -> None:
    done = _python(
        "import sys; sys.argv = ['corral', 'version']\n"
        "from corral.cli import main\n"
        "main.Root.table['version'] = main.CommandEntry('no.such:thing', '')\n"
        "main.main()"
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("Error: a fault inside Corral: ModuleNotFoundError")


def test_wrong_setting_is_one_line_and_exit_code_2(
    corral: Corral, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_PORT", "many")
    ran = corral("status")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "CORRAL_PORT" in ran.err


def test_missing_file_is_one_line(corral: Corral, tmp_path: Path) -> None:
    ran = corral("submit", "echo", "--file", str(tmp_path / "none.jsonl"))
    assert ran.code == 1
    assert ran.err == f"Error: No such file or directory: {tmp_path}/none.jsonl\n"


def test_exit_codes_by_kind() -> None:
    assert exit_code_of(Unreachable("x")) == 3
    assert exit_code_of(StoreUnavailable("x")) == 3
    assert exit_code_of(SettingsError("x")) == 2
    assert exit_code_of(TaskFailed("x")) == 1


def test_one_line_keeps_no_control_characters() -> None:
    assert one_line("a\n b\tc\x1b[31m\x00d") == "a b c [31m d"


def test_version_needs_no_manager(corral: Corral) -> None:
    from corral import __version__

    assert corral("version").out == f"corral {__version__}\n"
    assert corral("--version").out == f"corral {__version__}\n"
    assert json.loads(corral("version", "--json").out)["version"] == __version__

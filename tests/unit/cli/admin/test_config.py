from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from corral.cli.admin.config import config

app = typer.Typer()
app.command()(config)


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = re.compile(r"(CORRAL|REDIS|API|CLUSTER)_")
    for name in filter(ours.match, list(os.environ)):
        monkeypatch.delenv(name)
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_table_shows_each_value_and_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:hush@[::1]:6379/0")
    shown = CliRunner().invoke(app)
    assert shown.exit_code == 0
    row = r"redis_url +redis://:\*\*\*@\[::1\]:6379/0 +environment REDIS_URL"
    assert re.search(row, shown.stdout)
    assert re.search(r"port +8002 +default", shown.stdout)


def test_json_has_the_same_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_API_KEY", "hush")
    shown = CliRunner().invoke(app, ["--json"])
    rows = {row["name"]: row for row in json.loads(shown.stdout)["settings"]}
    assert rows["port"] == {
        "name": "port",
        "variable": "CORRAL_PORT",
        "value": 8002,
        "origin": "default",
    }
    assert rows["api_key"]["value"] == "********"
    assert "hush" not in shown.output


def test_a_misspelt_variable_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_PROT", "1")
    shown = CliRunner().invoke(app)
    assert shown.exit_code == 0
    assert "did you mean CORRAL_PORT?" in shown.stderr
    assert "CORRAL_PROT" not in shown.stdout


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_wrong_value_is_one_line_and_exit_code_2(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_PORT", "x")
    shown = CliRunner().invoke(app, arguments)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr.startswith("API_PORT='x' (environment) is not allowed")
    assert shown.stderr.count("\n") == 1

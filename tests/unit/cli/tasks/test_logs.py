"""`corral artifacts`: files of tasks, listed and fetched."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.conftest import Corral
from tests.unit.client.calls.test_output import leave
from tests.unit.client.stand_in import StandIn


def test_files_are_listed_with_what_was_left_out(
    manager: StandIn, corral: Corral
) -> None:
    leave(manager, {"a/b": b"x" * 2048, "c": b""}, left_out="'pipe' left out")
    ran = corral("artifacts", "list", "t1")
    assert ran.code == 0
    assert "a/b" in ran.out
    assert "2.0 KiB" in ran.out
    assert ran.err == "'pipe' left out\n"
    ran = corral("artifacts", "list", "t1", "--json")
    assert [a["name"] for a in json.loads(ran.out)["artifacts"]] == ["a/b", "c"]


def test_files_are_fetched_where_asked(
    manager: StandIn, corral: Corral, tmp_path: Path
) -> None:
    leave(manager, {"a/b": b"text", "c": b""})
    ran = corral("artifacts", "get", "t1", "--to", "here")
    assert (ran.code, ran.out) == (0, "here/a/b\nhere/c\n")
    assert (tmp_path / "here" / "a" / "b").read_bytes() == b"text"
    ran = corral("artifacts", "get", "t1", "c", "--json")
    assert json.loads(ran.out) == ["c"]
    ran = corral("artifacts", "get", "t1", "d")
    assert (ran.code, ran.err) == (1, "Error: task t1 left no file 'd'\n")


def test_no_files_are_said(manager: StandIn, corral: Corral) -> None:
    leave(manager, {})
    for command in ("list", "get"):
        ran = corral("artifacts", command, "t1")
        assert (ran.code, ran.out) == (0, "")
        assert ran.err == "Task t1 left no files.\n"

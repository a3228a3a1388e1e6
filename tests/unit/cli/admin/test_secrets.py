"""Secret set, list, remove: where values come from, and where they never are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault

VALUE = "s3cr3t-Value/42"
INFO: dict[str, Any] = {
    "name": "HF_TOKEN",
    "job_types": [],
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-02T00:00:00Z",
}
POST = "POST /secrets"


def sent(manager: StandIn) -> Any:
    (seen,) = manager.asked(POST)
    return seen.json


@pytest.mark.parametrize("text", [VALUE, f"{VALUE}\n", f"{VALUE}\r\n"])
def test_a_value_comes_from_stdin(manager: StandIn, corral: Corral, text: str) -> None:
    manager.on(POST, INFO)
    ran = corral("secret", "set", "HF_TOKEN", "-", stdin=text)
    assert (ran.code, ran.out, ran.err) == (0, "set HF_TOKEN\n", "")
    assert sent(manager) == {"name": "HF_TOKEN", "value": VALUE}


def test_who_may_have_it_is_said_and_lifted(manager: StandIn, corral: Corral) -> None:
    manager.on(POST, INFO, INFO)
    only = ("--key", "ann", "--node-label", "zone=trusted")
    assert corral("secret", "set", "HF_TOKEN", "-", *only, stdin=VALUE).code == 0
    ran = corral("secret", "set", "HF_TOKEN", "-", "--open", *only[:2], stdin=VALUE)
    assert ran.code == 0
    first, second = (seen.json for seen in manager.asked(POST))
    assert (first["keys"], first["node_labels"]) == (["ann"], {"zone": "trusted"})
    assert "job_types" not in first
    assert (second["job_types"], second["node_labels"]) == ([], {})
    assert second["keys"] == ["ann"]


def test_a_value_comes_from_a_file_with_its_lines(
    manager: StandIn, corral: Corral, tmp_path: Path
) -> None:
    manager.on(POST, INFO)
    (tmp_path / "key").write_text("line 1\nline 2\n\n")
    ran = corral("secret", "set", "HF_TOKEN", "--from-file", str(tmp_path / "key"))
    assert ran.code == 0, ran
    assert sent(manager)["value"] == "line 1\nline 2\n"


def test_a_value_is_asked_for_and_not_shown(manager: StandIn, corral: Corral) -> None:
    manager.on(POST, INFO)
    ran = corral("secret", "set", "HF_TOKEN", "--job-type", "train", stdin=f"{VALUE}\n")
    assert ran.code == 0, ran
    assert VALUE not in ran.out + ran.err
    assert sent(manager) == {"name": "HF_TOKEN", "value": VALUE, "job_types": ["train"]}


def test_a_value_on_the_command_line_is_refused_and_not_repeated(
    manager: StandIn, corral: Corral
) -> None:
    ran = corral("secret", "set", "HF_TOKEN", VALUE)
    assert ran.code == 2
    assert "never on the command line" in ran.err.replace("\n", " ")
    assert VALUE not in ran.out + ran.err
    assert not manager.seen


def test_what_is_no_text_and_no_file_is_refused(
    manager: StandIn, corral: Corral, tmp_path: Path
) -> None:
    (tmp_path / "raw").write_bytes(b"\xff\xfe")
    assert corral("secret", "set", "X", "--from-file", str(tmp_path / "raw")).code == 2
    ran = corral("secret", "set", "X", "--from-file", str(tmp_path / "none"))
    assert ran.code == 1
    assert "No such file" in ran.err
    ran = corral("secret", "set", "X", "-", "--from-file", str(tmp_path / "raw"))
    assert ran.code == 2
    assert not manager.seen


def test_secrets_are_listed_by_name(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /secrets", {"secrets": []}, {"secrets": [INFO]})
    assert "corral secret set NAME" in corral("secret", "list").err
    shown = corral("secret", "list").out.splitlines()
    assert shown[0].split() == [
        *("SECRET", "JOB", "TYPES", "KEYS", "NODES", "SET", "CHANGED")
    ]
    assert shown[1].split()[:4] == ["HF_TOKEN", "all", "all", "all"]
    assert '"name": "HF_TOKEN"' in corral("secret", "list", "--json").out


def test_removing_what_is_not_there_says_so(manager: StandIn, corral: Corral) -> None:
    missing = fault("not_found", 404, "no secret 'HF_TOKEN'")
    manager.on("DELETE /secrets/HF_TOKEN", {"message": "", "name": ""}, missing)
    assert corral("secret", "remove", "HF_TOKEN").out == "removed HF_TOKEN\n"
    ran = corral("secret", "remove", "HF_TOKEN")
    assert (ran.code, ran.err) == (1, "Error: no secret 'HF_TOKEN'\n")

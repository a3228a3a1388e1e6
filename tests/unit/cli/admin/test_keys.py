"""Key create, list, revoke: what is printed once, and what never is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault

TEXT = "corral_0a1b_s3cr3t"
INFO: dict[str, Any] = {
    "key_id": "0a1b",
    "name": "ann",
    "owner": "ann",
    "role": "submit",
    "status": "valid",
    "created_at": "2026-01-01T00:00:00Z",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
}
POST = "POST /keys"


def test_a_key_is_printed_alone_on_stdout(manager: StandIn, corral: Corral) -> None:
    manager.on(POST, {**INFO, "key": TEXT})
    ran = corral("key", "create", "ann")
    assert (ran.code, ran.out) == (0, f"{TEXT}\n")
    assert "shown this once" in ran.err
    (seen,) = manager.asked(POST)
    assert seen.json == {"name": "ann", "role": "submit"}


@pytest.mark.parametrize(("expires", "ttl_s"), [("30d", 30 * 86_400.0), ("90", 90.0)])
def test_a_key_has_a_role_and_an_end(
    manager: StandIn, corral: Corral, expires: str, ttl_s: float
) -> None:
    manager.on(POST, {**INFO, "key": TEXT, "expires_at": "2026-01-31T00:00:00Z"})
    ran = corral("key", "create", "ann", "--role", "operate", "--expires", expires)
    assert ran.code == 0, ran
    (seen,) = manager.asked(POST)
    assert seen.json == {"name": "ann", "role": "operate", "ttl_s": ttl_s}
    assert "until 2026-01-3" in ran.err


def test_a_time_that_is_none_is_refused_before_anything_is_asked(
    manager: StandIn, corral: Corral
) -> None:
    ran = corral("key", "create", "ann", "--expires", "soon")
    assert ran.code == 2
    assert "is no time" in ran.err
    assert not manager.seen


def test_keys_are_listed_without_their_texts(manager: StandIn, corral: Corral) -> None:
    used = {**INFO, "name": "bob", "last_used_at": "2026-01-02T00:00:00Z"}
    manager.on("GET /keys", {"keys": [INFO, used]})
    ran = corral("key", "list")
    first, second = [line.split() for line in ran.out.splitlines()[1:]]
    assert first[:4] == ["0a1b", "ann", "submit", "valid"]
    assert first[-2:] == ["never", "never"]
    assert second[-1] != "never"
    told = json.loads(corral("key", "list", "--json").out)
    assert [row["name"] for row in told] == ["ann", "bob"]


def test_a_key_is_revoked_by_its_name(manager: StandIn, corral: Corral) -> None:
    manager.on("DELETE /keys/ann", {**INFO, "status": "revoked"})
    ran = corral("key", "revoke", "ann")
    assert (ran.code, ran.out) == (0, "revoked ann (0a1b)\n")


def test_an_unknown_key_is_said_so(manager: StandIn, corral: Corral) -> None:
    manager.on("DELETE /keys/eve", fault("not_found", 404, "no key 'eve'"))
    ran = corral("key", "revoke", "eve")
    assert ran.code == 1
    assert "no key" in ran.err


TOKEN: dict[str, Any] = {
    "token_id": "8f2c1d0e9a77",
    "status": "valid",
    "uses_left": 2,
    "labels": {"zone": "trusted"},
    "taints": ["spot"],
    "job_types": ["deploy"],
}


def test_a_join_token_says_what_its_nodes_are(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /join-tokens", {"token": "corral_t_s", "uses": 1})
    told = ("--label", "zone=trusted", "--taint", "spot", "--type", "deploy")
    ran = corral("token", "create", *told)
    assert (ran.code, ran.out) == (0, "corral_t_s\n"), ran
    assert "CORRAL_JOIN_TOKEN=TOKEN corral join" in ran.err
    (seen,) = manager.asked("POST /join-tokens")
    assert seen.json == {
        name: TOKEN[name] for name in ("labels", "taints", "job_types")
    }


def test_join_tokens_are_listed_and_revoked(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /join-tokens", {"tokens": [TOKEN]})
    manager.on("DELETE /join-tokens/8f2c1d0e9a77", {**TOKEN, "status": "revoked"})
    shown = corral("token", "list").out
    assert "8f2c1d0e9a77" in shown
    assert "zone=trusted, taint spot, type deploy" in shown
    ran = corral("token", "revoke", "8f2c1d0e9a77")
    assert (ran.code, ran.out) == (0, "revoked 8f2c1d0e9a77\n")

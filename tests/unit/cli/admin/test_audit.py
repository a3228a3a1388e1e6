"""Audit: rows by page, and what a broken chain says."""

from __future__ import annotations

from typing import Any

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn

ROW: dict[str, Any] = {
    "seq": 7,
    "at": "2026-01-01T00:00:00Z",
    "actor": "k1",
    "name": "ann",
    "action": "key.create",
    "target": "k2",
    "allowed": False,
    "ip": "10.0.0.1",
    "request_id": "r",
    "data": {},
}
WHOLE: dict[str, Any] = {"is_intact": True, "first_seq": 1, "last_seq": 7}


def test_rows_are_shown_over_several_pages(manager: StandIn, corral: Corral) -> None:
    first = {"rows": [ROW], "cursor": 7, "is_intact": True}
    last = {"rows": [{**ROW, "seq": 6}], "cursor": None, "is_intact": False}
    manager.on("GET /audit", first, last)
    ran = corral("audit", "--actor", "ann", "--since", "2h", "--refused")
    assert ran.code == 0, ran
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == ["SEQ", "7", "6"]
    assert "refused" in lines[1]
    assert "corral audit --verify" in ran.err
    one, two = (seen.query for seen in manager.asked("GET /audit"))
    assert (one["actor"], one["allowed"]) == ("ann", "false")
    assert float(one["since"]) == -7200
    assert two["before"] == "7"


def test_a_broken_chain_ends_with_one(manager: StandIn, corral: Corral) -> None:
    broken = {**WHOLE, "is_intact": False, "fault": "row 3 is missing"}
    former = {**WHOLE, "keyed_from": 4}
    manager.on("GET /audit/check", {**WHOLE, "keyed_from": 1}, former, broken)
    assert corral("audit", "--verify").out == "whole: rows 1 to 7\n"
    assert "up to 3 are of a release" in corral("audit", "--verify").out
    ran = corral("audit", "--verify")
    assert (ran.code, ran.out) == (1, "broken: row 3 is missing (rows 1 to 7)\n")

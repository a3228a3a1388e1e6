"""`corral rebalance`."""

from __future__ import annotations

import json

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn

MOVE = {
    "type": "model_migration",
    "from_worker": "w-1",
    "to_worker": "w-2",
    "model": "llama",
    "saves_s": 12.0,
    "costs_s": 0.5,
}
TOLD = {
    "rebalance_id": "r-1",
    "status": "initiated",
    "estimated_duration": 20.0,
    "affected_workers": ["w-1", "w-2"],
    "operations": [MOVE, {**MOVE, "type": "model_copy", "model": "phi"}],
}


def test_moves_are_shown_with_what_they_save_and_cost(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /cluster/rebalance", TOLD)
    done = corral("rebalance")
    assert done.code == 0
    move, copy = done.out.splitlines()[1:]
    for word in ("llama", "w-1", "w-2", "move", "12"):
        assert word in move
    assert "copy" in copy
    assert "about 20" in done.err
    body = manager.asked("POST /cluster/rebalance")[-1].json
    assert body == {"strategy": "memory_optimized", "force": False, "dry_run": False}


def test_a_dry_run_and_its_strategy_are_said(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /cluster/rebalance", {**TOLD, "status": "dry_run"})
    done = corral("rebalance", "--dry-run", "--strategy", "load_balanced", "--force")
    assert "would take" in done.err
    body = manager.asked("POST /cluster/rebalance")[-1].json
    assert body == {"strategy": "load_balanced", "force": True, "dry_run": True}


def test_json_has_all_of_it(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /cluster/rebalance", TOLD)
    told = json.loads(corral("rebalance", "--json").out)
    assert told["rebalance_id"] == "r-1"
    assert told["operations"][0] == MOVE


def test_that_there_is_nothing_to_move_is_said(
    manager: StandIn, corral: Corral
) -> None:
    empty = {**TOLD, "status": "balanced", "operations": []}
    manager.on("POST /cluster/rebalance", empty)
    done = corral("rebalance")
    assert (done.code, done.out) == (0, "")
    assert "Nothing to move" in done.err

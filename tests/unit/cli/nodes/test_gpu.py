"""`corral gpu`, and cards for launched workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corral.cli.words.gpu import state
from tests.unit.cli.conftest import Corral
from tests.unit.cli.up.test_sequence import NODE, WORKER
from tests.unit.client.stand_in import StandIn

HELD = {"reason": "Xid 79", "until": "2026-01-01T00:05:00Z", "since": "x"}
CARDS: list[dict[str, Any]] = [
    {"id": "GPU-1", "index": 0, "name": "H200", "is_offered": True},
    {"id": "GPU-2", "index": 1, "name": "H200", "quarantine": HELD},
]
CARDS[0] |= {"memory_total_mb": 2048, "memory_offered_mb": 1024, "temperature_c": 41.2}


def on_cards(manager: StandIn) -> None:
    manager.on("GET /nodes", {"nodes": [{**NODE, "gpus": CARDS}]})
    manager.on("GET /workers", {"workers": [{**WORKER, "gpu_info": [CARDS[0]]}]})


def test_cards_are_listed_with_their_workers(manager: StandIn, corral: Corral) -> None:
    on_cards(manager)
    first, second = corral("gpu", "list").out.splitlines()[1:]
    for word in ("n1", "gpu:0", "2.0 GB", "1.0 GB", "41 C", "offered", "w1", "GPU-1"):
        assert word in first
    assert "quarantined until 2026-01-01T00:05: Xid 79" in second
    told = json.loads(corral("gpu", "list", "--json").out)
    assert [(card["node_id"], card["worker_id"]) for card in told] == [
        ("n1", "w1"),
        ("n1", None),
    ]


def test_no_card_is_said(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /nodes", {"nodes": [NODE]})
    manager.on("GET /workers", {"workers": []})
    assert "No machine of the cluster has a GPU" in corral("gpu", "list").err


def test_a_card_is_released_where_it_is(manager: StandIn, corral: Corral) -> None:
    on_cards(manager)
    manager.on("POST /nodes/n1/gpus/GPU-2/release", CARDS[1])
    assert corral("gpu", "release", "GPU-2").out == "released GPU-2\n"
    assert "no node has a GPU" in corral("gpu", "release", "GPU-9").err
    manager.on("POST /nodes/n7/gpus/gpu%3A1/release", CARDS[1])
    named = corral("gpu", "release", "gpu:1", "--node", "n7")
    assert named.out == "released GPU-2\n"


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"is_offered": False}, "not offered"),
        ({"error": "it hangs"}, "cannot be read: it hangs"),
    ],
)
def test_a_card_that_is_not_offered_says_how_it_is(
    card: dict[str, Any], words: str
) -> None:
    assert state(card) == words


def test_cards_for_workers_are_asked_for(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /workers", {"workers": [WORKER]})
    assert corral("worker", "launch", "a:B", "--gpus", "gpu:0").out == "w1\n"
    assert manager.seen[0].json == {"worker_class": "a:B", "gpus": "gpu:0"}

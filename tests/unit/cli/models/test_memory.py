"""`corral models`: what is in memory, and what is asked of workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.cli.up.test_sequence import WORKER
from tests.unit.client.stand_in import StandIn

ID = "w-0123456789"
MODEL = {"name": "llama", "status": "loaded", "memory_usage": 4000.0, "load_time": 2.5}
HELD = {"worker_id": ID, "worker_name": "gen", "node_id": "n1", "models": [MODEL]}
ASSIGNED = {"worker_id": ID, "status": "loading", "estimated_time": 2.5}


def asked(manager: StandIn, verb: str) -> dict[str, Any]:
    body: dict[str, Any] = manager.asked(f"POST /models/{verb}")[-1].json
    return body


def test_models_are_listed_with_their_workers(manager: StandIn, corral: Corral) -> None:
    pinned = {**MODEL, "name": "phi", "pinned": True, "memory_usage": None}
    row = {**HELD, "models": [MODEL, pinned]}
    manager.on("GET /models/assignments", {"assignments": [row]})
    first, second = corral("models").out.splitlines()[1:]
    for word in ("llama", ID, "gen", "n1", "loaded", "4000 MB", "2.5 s"):
        assert word in first
    assert "yes" in second
    told = json.loads(corral("models", "--json").out)
    assert [model["name"] for model in told[0]["models"]] == ["llama", "phi"]


def test_without_models_it_is_said_how_to_load_one(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /models/assignments", {"assignments": []})
    assert "corral models load" in corral("models").err


@pytest.mark.parametrize(
    ("command", "preload", "pin"),
    [
        (("load",), True, None),
        (("pin",), True, True),
        (("pin", "--lazy"), False, True),
        (("unpin",), False, False),
    ],
)
def test_each_verb_says_what_is_to_be_kept(
    manager: StandIn,
    corral: Corral,
    command: tuple[str, ...],
    preload: bool,
    pin: bool | None,
) -> None:
    manager.on("POST /models/assign", {"assignments": [ASSIGNED]})
    done = corral("models", *command, "llama", ID)
    assert done.out == f"{ID} loading, about 2.5 s\n"
    body = asked(manager, "assign")
    assert (body["preload"], body["pin"], body["worker_ids"]) == (preload, pin, [ID])


def test_a_worker_may_be_called_by_its_name(manager: StandIn, corral: Corral) -> None:
    named = [{**WORKER, "worker_id": ID, "name": "gen"}]
    twins = [{**WORKER, "worker_id": f"w{n}", "name": "twin"} for n in range(2)]
    manager.on("GET /workers", {"workers": [*named, *twins]})
    manager.on("POST /models/assign", {"assignments": [ASSIGNED]})
    corral("models", "load", "llama", "gen", "--priority", "20")
    body = asked(manager, "assign")
    assert (body["worker_ids"], body["priority"]) == ([ID], 20)
    assert "no worker 'nobody'" in corral("models", "load", "llama", "nobody").err
    assert "use an id (w0, w1)" in corral("models", "load", "llama", "twin").err


def test_unloading_names_the_workers_that_drop_it(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /models/unload", {"affected_workers": [ID]})
    done = corral("models", "unload", "llama", "--force")
    assert done.out == f"unloading llama from {ID}\n"
    assert asked(manager, "unload") == {
        "model_name": "llama",
        "worker_ids": [],
        "force": True,
    }
    manager.on("POST /models/unload", {"affected_workers": []})
    assert "No worker has llama" in corral("models", "unload", "llama").err

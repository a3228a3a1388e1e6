"""`corral cordon`, `drain`, `uncordon`, `label`, `taint`, `window` and `leave`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault

ID = "n-0123456789"
PATH = f"/nodes/{ID}"


def node(**more: Any) -> dict[str, Any]:
    return {"node_id": ID, "hostname": "h", "status": "online", **more}


def held(scheduling: str, **more: Any) -> dict[str, Any]:
    hold = {"source": "operator", "reason": "cables", "drain": True}
    return node(scheduling=scheduling, holds=[hold], **more)


def test_a_cordon_says_what_the_node_is_now(corral: Corral, manager: StandIn) -> None:
    manager.on(f"POST {PATH}/cordon", held("cordoned"))
    ran = corral("cordon", ID, "--reason", "cables", "--until", "60")
    assert (ran.code, ran.out) == (0, f"{ID} is cordoned\n")
    assert "operator: cables" in ran.err
    asked = manager.asked(f"POST {PATH}/cordon")[0].json
    assert asked == {"reason": "cables", "until": 60.0}
    manager.on(f"POST {PATH}/uncordon", node())
    assert corral("uncordon", ID).out == f"{ID} is open\n"


def test_a_drain_waits_until_the_node_is_empty(
    corral: Corral, manager: StandIn
) -> None:
    manager.on(f"POST {PATH}/drain", held("draining", running_tasks=2))
    states = [held("draining", running_tasks=1), held("drained")]
    manager.on(f"GET {PATH}", *states)
    ran = corral("drain", ID, "--wait")
    assert (ran.code, ran.out) == (0, f"{ID} is drained\n")


def test_a_drain_that_takes_too_long_ends_with_1_and_goes_on(
    corral: Corral, manager: StandIn
) -> None:
    manager.on(f"POST {PATH}/drain", held("draining", running_tasks=2))
    manager.on(f"GET {PATH}", held("draining", running_tasks=2))
    ran = corral("drain", ID, "--timeout", "0")
    assert (ran.code, ran.out) == (1, f"{ID} is draining\n")
    assert "2 task(s) still run" in ran.err


def test_labels_and_taints_are_set_and_removed(
    corral: Corral, manager: StandIn
) -> None:
    shown = node(labels={"rack": "a"}, taints=["spot"])
    manager.on(f"PATCH {PATH}", shown)
    assert corral("label", ID, "rack=a", "old-").out == "rack=a\n"
    assert corral("taint", ID, "spot", "tier=a", "old-").out == "spot\n"
    labels, taints = (ask.json for ask in manager.asked(f"PATCH {PATH}"))
    assert labels["labels"] == {"rack": "a", "old": None}
    assert taints["taints"] == {"spot": "", "tier": "a", "old": None}


@pytest.mark.parametrize("words", [("label", "rack"), ("label", "rack=")])
def test_a_label_without_a_value_is_refused(
    corral: Corral, words: tuple[str, str]
) -> None:
    command, word = words
    assert corral(command, ID, word).code == 2


def test_windows_are_added_listed_and_removed(corral: Corral, manager: StandIn) -> None:
    row = {"name": "w", "duration": 7200, "cron": "0 3 * * 2", "reason": "patches"}
    manager.on(f"POST {PATH}/windows", {"windows": [row]})
    manager.on(f"GET {PATH}/windows", {"windows": [row]})
    manager.on(f"DELETE {PATH}/windows/w", {"windows": []})
    ran = corral(
        *("window", "add", ID, "w", "--cron", "0 3 * * 2", "--for", "2h"),
        *("--tz", "Europe/Berlin", "--cordon"),
    )
    assert (ran.code, ran.out) == (0, "w\n")
    assert manager.asked(f"POST {PATH}/windows")[0].json == {
        "name": "w",
        "duration": 7200.0,
        "cron": "0 3 * * 2",
        "timezone": "Europe/Berlin",
        "drain": False,
    }
    assert "patches" in corral("window", "list", ID).out
    assert json.loads(corral("window", "list", ID, "--json").out)[0]["name"] == "w"
    assert corral("window", "remove", ID, "w").out == "removed w\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--for", "2h"),
        ("--for", "2 weeks", "--at", "1"),
        ("--for", "2h", "--at", "1", "--cron", "@daily"),
    ],
)
def test_a_window_without_a_time_is_refused(
    corral: Corral, options: tuple[str, ...]
) -> None:
    assert corral("window", "add", ID, "w", *options).code == 2


def test_a_node_elsewhere_leaves(corral: Corral, manager: StandIn) -> None:
    gone = {"message": "m", "node_id": ID, "status": "leaving"}
    manager.on("GET /nodes", {"nodes": [node()]})
    manager.on(f"DELETE {PATH}", gone)
    manager.on(f"GET {PATH}", {**node(), "status": "left"})
    ran = corral("leave", "h", "--force")
    assert (ran.code, ran.out) == (0, "left\n")
    assert manager.asked(f"DELETE {PATH}")[0].query == {"force": "true"}


def credential(home: Path, name: str, url: str) -> Path:
    folder = home / "agents" / name
    folder.mkdir(parents=True)
    path = folder / "credential.json"
    who = {"node_id": ID, "key": "corral_n_s", "manager_url": url}
    path.write_text(json.dumps(who))
    return path


def test_this_machine_leaves_with_its_own_key_and_forgets_it(
    corral: Corral, manager: StandIn, tmp_path: Path
) -> None:
    kept = credential(tmp_path, "here", manager.url)
    gone = {"message": "m", "node_id": ID, "status": "left"}
    manager.on(f"DELETE {PATH}", gone)
    ran = corral("leave")
    assert (ran.code, ran.out) == (0, "left\n"), ran
    assert not kept.exists()
    asked = manager.asked(f"DELETE {PATH}")[0]
    assert asked.headers["authorization"] == "Bearer corral_n_s"
    assert corral("leave").code == 1


def test_a_machine_the_manager_does_not_know_only_forgets(
    corral: Corral, manager: StandIn, tmp_path: Path
) -> None:
    kept = credential(tmp_path, "here", manager.url)
    manager.on(f"DELETE {PATH}", fault("unauthenticated", 401, "this key is revoked"))
    assert corral("leave").code == 0
    assert not kept.exists()


def test_of_several_agents_here_one_must_be_named(
    corral: Corral, manager: StandIn, tmp_path: Path
) -> None:
    credential(tmp_path, "one", manager.url)
    credential(tmp_path, "two", manager.url)
    ran = corral("leave")
    assert ran.code == 1
    assert "one, two" in ran.err
    gone = {"message": "m", "node_id": ID, "status": "left"}
    manager.on(f"DELETE {PATH}", gone)
    assert corral("leave", "--name", "two").code == 0

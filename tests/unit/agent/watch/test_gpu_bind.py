"""Workers that are given cards: distinct ones, moved when a card is sick or gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.agent.config import AgentConfig
from corral.agent.gpu_policy import GpuPolicy
from corral.core.nodes.breaker import BreakerPolicy
from corral.worker.runner.gpu_memory import hold
from tests.unit.agent.conftest import Book, Running, wait_until
from tests.unit.agent.standin import StandInManager

Start = Callable[[AgentConfig], Running]
POLICY = GpuPolicy(
    simulated="2x24GB,1x8GB",
    look_s=0.05,
    quarantine=BreakerPolicy(2, 600.0, 3600.0),
)


@pytest.fixture
def simulated(config: AgentConfig) -> AgentConfig:
    return replace(config, gpus=POLICY)


def entry(manager: StandInManager, worker_id: str, **facts: Any) -> dict[str, Any]:
    """The worker's entry in a beat from now on that says all of this."""
    return manager.await_worker(
        lambda e: (
            e["worker_id"] == worker_id
            and all({**e, **e["facts"]}.get(k) == v for k, v in facts.items())
        )
    )


def cards(manager: StandInManager) -> list[dict[str, Any]]:
    told = [beat["gpus"] for beat in manager.beats if beat["gpus"] is not None]
    return [gpu for gpu in told[-1] if gpu["is_simulated"]] if told else []


def ledger(config: AgentConfig) -> Path:
    return config.folder / "simulated"


def break_card(config: AgentConfig, gpu_id: str, **errors: int) -> None:
    folder = ledger(config)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / "draft"
    draft.write_text(json.dumps(errors), encoding="utf-8")
    draft.replace(folder / f"{gpu_id}.errors")


def asks(book: Book, worker_id: str, gpus: str) -> dict[str, Any]:
    return {**book.worker(worker_id), "gpus": gpus}


def test_workers_get_cards_of_their_own_and_are_shown_those_alone(
    manager: StandInManager, simulated: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [
        asks(book, "w1", "1"),
        asks(book, "w2", "1"),
        book.worker("w3"),
        asks(book, "w4", "2"),
    ]
    start(simulated)
    given = [entry(manager, w, state="ready")["facts"]["gpus"] for w in ("w1", "w2")]
    big, also_big, _ = manager.wait_for(lambda: cards(manager))
    assert sorted(given) == sorted([[big["id"]], [also_big["id"]]])
    shown = book.find("env", "w1")[0]
    assert shown["CORRAL_GPUS"] == given[0][0]
    assert shown["CUDA_VISIBLE_DEVICES"] == "-1"
    plain = entry(manager, "w3", state="ready")
    assert "gpus" not in plain["facts"]
    assert "CORRAL_GPUS" not in book.find("env", "w3")[0]
    waiting = entry(manager, "w4", state="error")
    assert waiting["pid"] is None
    assert waiting["facts"] == {"gpus": []}
    assert "gpu:0 (Simulated GPU 24 GB) is held by worker echo-w1" in waiting["error"]
    assert "gpu:2 (Simulated GPU 8 GB) is free" in waiting["error"]


def test_who_waits_for_a_card_gets_it_when_another_leaves(
    manager: StandInManager, simulated: AgentConfig, book: Book, start: Start
) -> None:
    config = replace(simulated, gpus=replace(simulated.gpus, simulated="8GB"))
    manager.workers = [asks(book, "w1", "1"), asks(book, "w2", "gpu:0")]
    start(config)
    entry(manager, "w1", state="error")
    held = entry(manager, "w2", state="ready")
    manager.desire(asks(book, "w1", "1"))
    freed = entry(manager, "w1", state="ready")
    assert freed["facts"] == held["facts"]


def test_who_waits_for_memory_gets_it_when_others_give_it_back(
    manager: StandInManager, simulated: AgentConfig, book: Book, start: Start
) -> None:
    config = replace(simulated, gpus=replace(simulated.gpus, simulated="8GB"))
    running = start(config)
    (card,) = manager.wait_for(lambda: cards(manager))
    with hold(ledger(config), card["id"], 8000.0):
        manager.wait_for(lambda: cards(manager)[0]["memory_offered_mb"] == 0.0)
        manager.desire(asks(book, "w1", "1"))
        assert "is used by others" in entry(manager, "w1", state="error")["error"]
    entry(manager, "w1", state="ready", gpus=[card["id"]])
    running.stop()


def test_a_sick_card_is_quarantined_and_its_worker_moves_and_it_can_be_released(
    manager: StandInManager, simulated: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [asks(book, "w1", "1")]
    running = start(simulated)
    first = entry(manager, "w1", state="ready")["facts"]["gpus"][0]
    break_card(simulated, first, xid_79=2)
    moved = manager.await_worker(
        lambda e: e["state"] == "ready" and e["facts"]["gpus"] not in ([], [first])
    )
    sick = manager.wait_for(
        lambda: [c for c in cards(manager) if c["health"] == "quarantined"]
    )[0]
    assert (sick["id"], sick["is_offered"]) == (first, False)
    assert sick["memory_offered_mb"] == 0.0
    assert sick["quarantine"]["reason"] == "Xid 79, 2 in all"
    running.stop()
    start(simulated)
    entry(manager, "w1", state="ready", gpus=moved["facts"]["gpus"])
    assert [c["id"] for c in cards(manager) if c["quarantine"]] == [first]
    since = sick["quarantine"]["since"]
    manager.gpu_releases = [{"gpu_id": first, "since": since}]
    manager.version += 1
    manager.wait_for(lambda: all(c["health"] == "ok" for c in cards(manager)))


def test_a_card_that_falls_off_the_bus_takes_its_worker_along_to_another(
    manager: StandInManager, simulated: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [asks(book, "w1", "1")]
    start(simulated)
    first = entry(manager, "w1", state="ready")["facts"]["gpus"][0]
    (ledger(simulated)).mkdir(exist_ok=True)
    (ledger(simulated) / f"{first}.gone").touch()
    manager.await_worker(
        lambda e: e["state"] == "ready" and e["facts"]["gpus"] not in ([], [first])
    )


def test_a_worker_that_dies_of_its_card_counts_against_that_card(
    manager: StandInManager, simulated: AgentConfig, book: Book, start: Start
) -> None:
    dying = asks(book, "w1", "1")
    dying["params"]["die"] = "CUDA error: uncorrectable ECC error encountered"
    manager.workers = [dying]
    start(simulated)
    sick = manager.wait_for(lambda: [c for c in cards(manager) if c["quarantine"]])
    assert "uncorrectable ECC" in sick[0]["quarantine"]["reason"]


def test_a_node_without_cards_says_so(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [asks(book, "w1", "gpu:7")]
    start(replace(config, gpus=GpuPolicy(devices=())))
    told = entry(manager, "w1", state="error")
    assert "no GPU" in told["error"]
    wait_until(lambda: not book.rows())

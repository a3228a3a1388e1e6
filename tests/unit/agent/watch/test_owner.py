"""The agent sees its node's owner, and says so in its beats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corral.agent.config import AgentConfig
from corral.agent.watch.owner import OwnerWatch
from corral.core.nodes.owner import OwnerMode, OwnerPolicy
from corral.wire.agent import OwnerWord
from tests.unit.agent.conftest import Running
from tests.unit.agent.standin import StandInManager

Start = Callable[[AgentConfig], Running]


def owners(manager: StandInManager) -> list[Any]:
    return [beat["owner"] for beat in manager.beats]


def test_without_a_policy_beats_say_nothing_of_an_owner(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    start(config)
    manager.wait_for(lambda: len(manager.beats) >= 2)
    assert set(owners(manager)) == {None}


def test_input_is_told_at_once_and_until_it_was_quiet() -> None:
    idle: list[float | None] = [5.0]
    rung: list[bool] = []
    policy = OwnerPolicy(OwnerMode.PAUSE, resume_s=60.0)
    watch = OwnerWatch(
        policy, lambda: (), lambda: idle[0], on_news=lambda: rung.append(True)
    )
    watch.look(0.0)
    word = OwnerWord(active=True, reason="somebody is at the machine")
    assert (watch.word(), rung) == (word, [True])
    idle[0] = None
    watch.look(1.0)
    watch.look(60.0)
    assert (watch.word(), rung) == (word, [True])
    watch.look(61.0)
    assert watch.word() == OwnerWord(active=False)
    assert rung == [True, True]

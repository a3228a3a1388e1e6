"""What beats say of GPUs: once when there is something to say, and again after that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from corral.agent.config import AgentConfig
from corral.agent.gpu_policy import GpuPolicy
from corral.worker.runner.gpu_memory import hold
from tests.unit.agent.conftest import Running
from tests.unit.agent.standin import StandInManager

Start = Callable[[AgentConfig], Running]


def told(manager: StandInManager) -> list[list[dict[str, Any]]]:
    return [beat["gpus"] for beat in manager.beats if beat["gpus"] is not None]


def simulated(gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [gpu for gpu in gpus if gpu["is_simulated"]]


def test_gpus_are_told_at_once_and_most_beats_do_without(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    policy = GpuPolicy(simulated="2x24GB,1x8GB")
    start(replace(config, beat_s=0.02, sample_s=60.0, gpus=policy))
    beats = manager.wait_for(
        lambda: bool(told(manager)) and len(manager.beats) > 20 and manager.beats
    )
    assert sum(beat["gpus"] is not None for beat in beats) <= 2
    sizes = [gpu["memory_total_mb"] for gpu in simulated(told(manager)[0])]
    assert sizes == [24576.0, 24576.0, 8192.0]


def test_memory_taken_by_others_is_told_before_the_next_sample(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    policy = GpuPolicy(simulated="24GB", look_s=0.05)
    start(replace(config, beat_s=30.0, sample_s=60.0, gpus=policy))
    card = simulated(manager.wait_for(lambda: told(manager))[0])[0]
    with hold(config.folder / "simulated", card["id"], 10_000.0):
        manager.wait_for(lambda: len(told(manager)) > 1)
    assert simulated(told(manager)[1])[0]["memory_free_mb"] == 14_576.0


def test_a_new_registration_is_told_again(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    start(replace(config, gpus=GpuPolicy(simulated="8GB")))
    manager.wait_for(lambda: told(manager))
    manager.epoch += 1
    manager.wait_for(lambda: len(manager.registrations) > 1)
    manager.wait_for(lambda: len(told(manager)) > 1)

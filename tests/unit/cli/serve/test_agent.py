"""What a node's settings say of its GPUs."""

from __future__ import annotations

import pytest

from corral.agent.gpu_policy import GpuPolicy
from corral.cli.serve.agent import breaker_policy, gpu_policy
from corral.core.nodes.breaker import BreakerPolicy
from corral.errors import SettingsError
from corral.settings import load


def test_chosen_and_simulated_gpus_reach_the_agent() -> None:
    config = load(gpu_devices="0,GPU-6d1b2f60", simulated_gpus="2x24GB,1x8gb")
    policy = GpuPolicy(("0", "GPU-6d1b2f60"), "2x24GB,1x8gb")
    assert gpu_policy(config) == policy
    assert gpu_policy(load()) == GpuPolicy()


@pytest.mark.spec("B14")
def test_the_share_of_memory_and_the_rules_of_quarantine_reach_the_agent() -> None:
    config = load(gpu_memory_fraction=0.5, gpu_error_limit=1, gpu_probe_after_s=9)
    policy = gpu_policy(config)
    assert policy.memory_share == 0.5
    assert policy.quarantine == BreakerPolicy(1, 600.0, 9.0, longest_s=86_400.0)


def test_settings_of_breakers_reach_the_agent() -> None:
    config = load(breaker_failures=2, breaker_window_s=30, breaker_cooldown_s=3)
    assert breaker_policy(config) == BreakerPolicy(2, 30.0, 3.0, longest_s=30.0)
    assert breaker_policy(load()) == BreakerPolicy(5, 300.0, 60.0, longest_s=600.0)


@pytest.mark.parametrize("text", ["2x", "lots", "0x8GB", "1x0GB", "8", "8GB 8GB"])
def test_a_list_of_simulated_gpus_written_wrong_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="a list like 2x24GB,1x8GB"):
        load(simulated_gpus=text)

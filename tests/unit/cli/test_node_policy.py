"""What a node's settings say of its GPUs."""

from __future__ import annotations

import pytest

from corral.agent.probe.watch import GpuPolicy
from corral.cli.node_policy import gpu_policy
from corral.errors import SettingsError
from corral.settings import load


def test_chosen_and_simulated_gpus_reach_the_agent() -> None:
    config = load(gpu_devices="0,GPU-6d1b2f60", simulated_gpus="2x24GB,1x8gb")
    policy = GpuPolicy(("0", "GPU-6d1b2f60"), "2x24GB,1x8gb")
    assert gpu_policy(config) == policy
    assert gpu_policy(load()) == GpuPolicy()


@pytest.mark.parametrize("text", ["2x", "lots", "0x8GB", "1x0GB", "8", "8GB 8GB"])
def test_a_list_of_simulated_gpus_written_wrong_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="a list like 2x24GB,1x8GB"):
        load(simulated_gpus=text)

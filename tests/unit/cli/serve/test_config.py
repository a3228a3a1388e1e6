"""What settings say of workers by demand and of models, as the manager gets it."""

from __future__ import annotations

import pytest

from corral.cli.serve.config import manager_config, scaling_config
from corral.manager.workers.scaling import ScalingConfig
from corral.scheduler.scaling.values import ScalingPolicy
from corral.settings import load


@pytest.mark.spec("C34")
def test_the_names_of_existing_documents_reach_the_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AUTO_SCALE_ENABLED", "true")
    monkeypatch.setenv("MAX_WORKERS", "11")
    monkeypatch.setenv("MODEL_CACHE_SIZE", "6")
    monkeypatch.setenv("GPU_MEMORY_THRESHOLD", "0.7")
    made = manager_config(load(), b"secret")
    assert made.scaling == ScalingConfig(True, ScalingPolicy(most=11))
    assert (made.policy.most_models, made.models.share) == (6, 0.7)


def test_the_times_of_autoscaling_reach_the_manager() -> None:
    assert scaling_config(load()) == ScalingConfig()
    made = load(
        auto_scale_wait_s=1,
        auto_scale_idle_s=2,
        auto_scale_cooldown_s=3,
        auto_scale_node_workers=4,
    )
    policy = ScalingPolicy(1.0, 2.0, 3.0)
    assert scaling_config(made) == ScalingConfig(policy=policy, node_workers=4)

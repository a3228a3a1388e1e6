"""From settings to when the manager adds workers and lets them go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.manager.workers.scaling import ScalingConfig
    from corral.settings import Settings


def scaling_config(config: Settings) -> ScalingConfig:
    from corral.manager.workers.scaling import ScalingConfig
    from corral.scheduler.scaling.values import ScalingPolicy

    return ScalingConfig(
        config.auto_scale_enabled,
        ScalingPolicy(
            config.auto_scale_wait_s,
            config.auto_scale_idle_s,
            config.auto_scale_cooldown_s,
            config.max_workers,
        ),
        config.auto_scale_node_workers,
    )

"""From the settings to how the manager judges silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.manager.nodes.liveness import Liveness
    from corral.settings import Settings


def liveness(config: Settings) -> Liveness:
    """When nodes are suspect or lost, and when that is not believed."""
    from corral.manager.nodes.liveness import Liveness

    return Liveness(
        suspect_s=config.suspect_after_s,
        lost_s=config.lost_after_s,
        mass_loss_nodes=config.mass_loss_nodes,
        register_s=config.worker_registration_timeout_s,
        mass_loss_share=config.mass_loss_share,
        no_overlap_kill_s=config.no_overlap_kill_s,
        no_overlap_requeue_s=config.no_overlap_requeue_s,
        beat_s=config.beat_s,
    )

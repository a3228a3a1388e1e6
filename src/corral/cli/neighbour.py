"""From settings to what the manager needs of the services around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.manager.neighbour import NeighbourConfig
    from corral.settings import Settings


def neighbour_config(config: Settings) -> NeighbourConfig | None:
    """The task service to tell of tasks, when one is named."""
    from corral.manager.neighbour import NeighbourConfig

    if config.task_manager_url is None:
        return None
    key, label = config.task_manager_key, config.task_manager_label
    name, _, value = (label or "").partition(":")
    return NeighbourConfig(
        config.task_manager_url,
        key.get_secret_value() if key else None,
        (name, value) if label else None,
    )

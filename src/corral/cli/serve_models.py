"""From settings to where the manager looks for models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.cli.serve_files import s3_access

if TYPE_CHECKING:
    from corral.manager.models.sources import SourceConfig
    from corral.settings import Settings


def source_config(config: Settings) -> SourceConfig:
    """Folders, the hub, S3 and a model manager, as far as they are named."""
    from corral.manager.models.sources import SourceConfig

    token = config.model_hub_token
    return SourceConfig(
        (config.model_cache_dir,),
        config.model_hub_url,
        config.model_hub_cache,
        s3_access(config),
        config.model_manager_url,
        config.model_manager_path,
        token.get_secret_value() if token else None,
    )

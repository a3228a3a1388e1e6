"""Models: where they come from, where they are kept, when they go.

Part of `Settings`; what each is for stands in docs/settings.md. Nothing is read here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from corral.settings import derived as made
from corral.settings import sources as alias
from corral.settings.sources import Place, Seconds, setting


class ModelSettings(BaseSettings):
    """What `Settings` has of models."""

    # Where they come from
    model_manager_url: alias.HttpUrl | None = setting(None, "MODEL_MANAGER_URL")
    model_manager_path: Place | None = setting(None, "MODEL_MANAGER_PATH")
    model_hub_url: alias.HttpUrl = setting(made.HUB, "HF_ENDPOINT")
    model_hub_cache: Place = setting(made.hub_cache, "HF_HUB_CACHE")
    model_hub_token: SecretStr | None = setting(None, "HF_TOKEN")
    model_buckets: alias.Buckets = setting(())
    model_peers: bool = setting(False)
    model_peer_port: int = setting(0, span=(0, 65_535))

    # On disk and in memory
    model_cache_dir: Place = setting(
        made.model_cache, "MODEL_CACHE_DIR", "CORRAL_MODEL_DIR"
    )
    model_disk_gb: float = setting(50.0, "MAX_MODEL_CACHE_SIZE_GB", span=(0.001, 1e6))
    model_cache_size: int = setting(5, "MODEL_CACHE_SIZE", span=alias.COUNT)
    model_idle_s: Seconds = setting(0.0, span=(0, alias.KEEP[1]))
    model_load_timeout_s: Seconds = setting(
        300.0, "MODEL_LOAD_TIMEOUT", span=alias.WAIT
    )
    eviction: Literal["gdsf", "lru"] = setting("gdsf")
    prefetch: Literal["off", "rate", "pattern"] = setting("off")

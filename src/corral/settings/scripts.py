"""Code of workers and scripts: caches, checkpoints, Git, containers.

Part of `Settings`; what each is for stands in docs/settings.md. Nothing is read here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from corral.settings import sources as alias
from corral.settings.sources import Seconds, setting


class ScriptSettings(BaseSettings):
    """What `Settings` has of code, and of what it may use."""

    isolation: Literal["sandbox", "process"] = setting("sandbox")
    cache_limit_gb: float = setting(20.0, span=(0.1, 1e6))
    artifact_limit_gb: float = setting(10.0, span=(0.001, 1e6))
    result_cache_mb: float = setting(256.0, span=(0, 1e6))
    checkpoint_s: Seconds = setting(30.0, span=(1, alias.DAY_S))
    build_dependencies: bool = setting(False)
    host_network: bool = setting(False)
    git_allow_file: bool = setting(False)
    git_allow: alias.Targets = setting(("public",))
    git_tokens: SecretStr | None = setting(None)
    git_ssh_key: alias.Place | None = setting(None)
    git_limit_gb: float = setting(10.0, span=(0.001, 1e6))
    container_host: str | None = setting(None, "DOCKER_HOST")
    container_network: bool = setting(False)
    container_pull: bool = setting(True)
    container_registries: alias.Registries = setting(())
    container_login: bool = setting(False)
    container_memory_mb: int | None = setting(None, span=(16, 1e9))
    container_processes: int = setting(4096, span=alias.COUNT)
    allowed_volumes: alias.Paths = setting(())
    allowed_devices: alias.Paths = setting(())

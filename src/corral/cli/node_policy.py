"""What a node's settings allow the code that runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corral.errors import SettingsError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from corral.agent.probe.watch import GpuPolicy
    from corral.settings import Settings


def code_policy(config: Settings) -> dict[str, Any]:
    """The part of the settings that travels to every worker of this node."""
    return {
        "limit_bytes": int(config.cache_limit_gb * (1 << 30)),
        "allow_file": config.git_allow_file,
        "git_tokens": _tokens(config.git_tokens),
        "artifact_limit_bytes": int(config.artifact_limit_gb * (1 << 30)),
        "checkpoint_s": config.checkpoint_s,
        "log_limit_bytes": int(config.log_limit_mb * (1 << 20)),
    }


def container_policy(config: Settings) -> dict[str, Any]:
    """What containers may have on this node."""
    return {
        "host": config.container_host or "",
        "allowed_volumes": list(config.allowed_volumes),
        "allowed_devices": list(config.allowed_devices),
        "may_use_network": config.container_network,
        "may_pull": config.container_pull,
    }


def gpu_policy(config: Settings) -> GpuPolicy:
    """Which GPUs of this node are offered, and which are made up."""
    from corral.agent.probe.watch import GpuPolicy

    return GpuPolicy(config.gpu_devices, config.simulated_gpus)


def _tokens(secret: SecretStr | None) -> dict[str, str]:
    text = secret.get_secret_value() if secret else ""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    if not all(host and token for host, _, token in pairs):
        raise SettingsError("CORRAL_GIT_TOKENS: allowed is host=TOKEN,host=TOKEN")
    return {host: token for host, _, token in pairs}

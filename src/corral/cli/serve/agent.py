"""`corral agent serve`, and what a node's settings allow the code that runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corral.core.nodes.labels import read_pairs
from corral.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr

    from corral.agent.gpu_policy import GpuPolicy
    from corral.core.nodes.breaker import BreakerPolicy
    from corral.core.nodes.owner import OwnerPolicy
    from corral.settings import Settings
import json
import os
import socket
from pathlib import Path

import typer

_LONGEST_COOLDOWN = 10


def code_policy(config: Settings) -> dict[str, Any]:
    """The part of the settings that travels to every worker of this node."""
    return {
        "limit_bytes": int(config.cache_limit_gb * (1 << 30)),
        "allow_file": config.git_allow_file,
        "isolation": config.isolation,
        "hidden": _hidden(config),
        "builds_dependencies": config.build_dependencies,
        "allows_host_network": config.host_network,
        "git_allow": list(config.git_allow),
        "git_tokens": _tokens(config.git_tokens),
        "git_ssh_key": _path(config.git_ssh_key) or "",
        "git_limit_bytes": int(config.git_limit_gb * (1 << 30)),
        "artifact_limit_bytes": int(config.artifact_limit_gb * (1 << 30)),
        "checkpoint_s": config.checkpoint_s,
        "log_limit_bytes": int(config.log_limit_mb * (1 << 20)),
        "model_room": config.model_cache_size,
        "model_dir": str(config.model_cache_dir),
        "model_disk_bytes": int(config.model_disk_gb * (1 << 30)),
        "model_hub_cache": str(config.model_hub_cache),
        "model_shared": _path(config.model_manager_path),
    }


def _hidden(config: Settings) -> list[str]:
    """Where this machine's own keys and settings lie: `CORRAL_X_FILE` and the like."""
    named = (v for k, v in os.environ.items() if k.endswith("_FILE") and "/" in v)
    here = (Path.cwd() / name for name in (".env", "corral.toml"))
    places = (config.home, *here, *map(Path, ("/etc/corral", *named)))
    return [str(place.absolute()) for place in places]


def _path(place: Path | None) -> str | None:
    return None if place is None else str(place)


def container_policy(config: Settings) -> dict[str, Any]:
    """What containers may have on this node."""
    return {
        "host": config.container_host or "",
        "allowed_volumes": list(config.allowed_volumes),
        "allowed_devices": list(config.allowed_devices),
        "may_use_network": config.container_network,
        "may_pull": config.container_pull,
        "registries": list(config.container_registries),
        "may_log_in": config.container_login,
        "memory_mb": config.container_memory_mb,
        "processes": config.container_processes,
    }


def peer_port(config: Settings) -> int | None:
    """Where this node gives model files to others; None where it does not."""
    return config.model_peer_port if config.model_peers else None


def node_labels(config: Settings) -> dict[str, str]:
    """What this node tells of itself; a label without a value is `true`."""
    return read_pairs(config.node_labels, bare="true")


def node_taints(config: Settings) -> tuple[str, ...]:
    """What keeps tasks away from this node unless they tolerate it."""
    return tuple(taint for taint in config.node_taints.split(",") if taint)


def gpu_policy(config: Settings) -> GpuPolicy:
    """Which GPUs of this node are offered, what of them, and which are made up."""
    from corral.agent.gpu_policy import GpuPolicy
    from corral.core.nodes.breaker import BreakerPolicy

    return GpuPolicy(
        config.gpu_devices,
        config.simulated_gpus,
        memory_share=config.gpu_memory_fraction,
        quarantine=BreakerPolicy(
            config.gpu_error_limit,
            config.gpu_error_window_s,
            config.gpu_probe_after_s,
            longest_s=86_400.0,
        ),
    )


def breaker_policy(config: Settings) -> BreakerPolicy:
    """After how many failures a kind of worker is left alone, and for how long."""
    from corral.core.nodes.breaker import BreakerPolicy

    return BreakerPolicy(
        config.breaker_failures,
        config.breaker_window_s,
        config.breaker_cooldown_s,
        longest_s=config.breaker_cooldown_s * _LONGEST_COOLDOWN,
    )


def owner_policy(config: Settings) -> OwnerPolicy:
    """What this node does while its owner uses it."""
    from corral.core.nodes.owner import OwnerMode, OwnerPolicy

    return OwnerPolicy(
        OwnerMode(config.owner_policy),
        config.owner_gpu_percent,
        config.owner_gpu_memory_mb,
        config.owner_idle_s,
        config.owner_resume_s,
    )


def _tokens(secret: SecretStr | None) -> dict[str, str]:
    text = secret.get_secret_value() if secret else ""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    if not all(host and token for host, _, token in pairs):
        raise SettingsError("CORRAL_GIT_TOKENS: allowed is host=TOKEN,host=TOKEN")
    return {host: token for host, _, token in pairs}


agent = typer.Typer(add_completion=False)


@agent.callback()
def agent_group() -> None:
    """The agent process."""


@agent.command("serve")
def serve_agent(name: str = "local") -> None:
    """Run an agent in the foreground, as `corral up` starts it."""
    from corral import settings
    from corral.agent.config import AgentConfig
    from corral.agent.life.main import serve
    from corral.agent.worker_option import parse_all
    from corral.cli.serve import agent as node_policy
    from corral.cli.serve.machine import machine_id
    from corral.cli.terminal.log import configure, secrets_of

    config = settings.load()
    configure(config.log_level, config.log_format, secrets_of(config))
    token = config.join_token
    raise typer.Exit(
        serve(
            AgentConfig(
                manager_url=config.manager_url,
                home=Path(config.home),
                name=config.node_name or name or socket.gethostname(),
                join_token=token.get_secret_value() if token else None,
                workers=parse_all(
                    _worker_options(config.agent_workers), config.worker_concurrency
                ),
                labels=node_policy.node_labels(config),
                taints=node_policy.node_taints(config),
                ca_file=config.ssl_cert_path,
                die_with_parent=True,
                code=node_policy.code_policy(config),
                containers=node_policy.container_policy(config),
                peer_port=node_policy.peer_port(config),
                gpus=node_policy.gpu_policy(config),
                breaker=node_policy.breaker_policy(config),
                machine=machine_id(),
                owner=node_policy.owner_policy(config),
                node_type="master",
                log_format=config.log_format,
                worker_env=config.worker_env,
                send_events=config.worker_send_task_events,
                allow_plaintext=config.allow_plaintext,
            )
        )
    )


def _worker_options(text: str) -> list[str]:
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, list) or not all(isinstance(x, str) for x in told):
        raise SettingsError(
            f"CORRAL_AGENT_WORKERS={text}: allowed is a JSON list of worker options"
        )
    return told

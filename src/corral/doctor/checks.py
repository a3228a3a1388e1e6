"""Which checks there are for this machine: settings in, checks out.

Each check's room is imported when it runs, on its own thread.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from corral import __version__
from corral.doctor.examine import Check
from corral.doctor.judge import machine as judge_machine
from corral.doctor.judge import version as judge_version
from corral.doctor.result import CheckResult, ok, problem, warn
from corral.errors import SettingsError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from corral.doctor.look.role import Role
    from corral.doctor.store import StoreUrl
    from corral.settings import Settings

_PROBE_S = 5.0
# Starting a sandbox and asking an engine takes its time on a busy machine.
_TOOL_S = 20.0


def plan(url: str | None = None, home: Path | None = None) -> list[Check]:
    """The checks for this machine; `url` and `home` as given on the command line."""
    from corral.settings import load

    try:
        config = load(manager_url=url, home=home)
    except SettingsError as error:
        found, _, fix = error.message.partition(": ")
        line = problem("settings", found, f"{fix}; more is checked once it is right")
        return [Check("settings", lambda: [line]), *_machine_checks()]
    return [*_checks(config, url, home)]


def _checks(config: Settings, url: str | None, home: Path | None) -> Iterator[Check]:
    from corral.doctor.look import role as look_role

    role = look_role.look(Path(config.home).absolute())
    yield Check("version", lambda: [_version()])
    yield Check(
        "settings", lambda: list(_settings(config, is_node=not role.is_manager))
    )
    if role.is_manager:
        yield from _manager_checks(config, role, url, home)
    else:
        yield Check("manager", lambda: list(_as_nodes(role)))
    yield Check("ports", lambda: list(_ports(config, role)))
    yield _gpu_check(config, role)
    yield Check("disk", lambda: list(_disks(config, role)))
    yield from _machine_checks(config.container_host or "")


def _manager_checks(
    config: Settings, role: Role, url: str | None, home: Path | None
) -> Iterator[Check]:
    from corral.doctor import store

    database = _given(config, "database_url", config.database_url)
    redis = _given(config, "redis_url", config.redis_url)
    yield Check("home", lambda: [_home(role)])
    yield Check("database", lambda: store.database(database, role))
    yield Check("redis", lambda: store.redis(redis, role))
    yield Check("manager", lambda: list(_manager(config, role, url, home)))


def _machine_checks(container_host: str = "") -> list[Check]:
    from corral.doctor.look import machine

    tool = judge_machine.tool
    return [
        Check("memory", lambda: list(judge_machine.memory(machine.memory()))),
        Check("clock", lambda: [tool(machine.time_zones())]),
        Check("sandbox", lambda: [tool(machine.sandbox())], _TOOL_S),
        Check(
            "containers", lambda: [tool(machine.containers(container_host))], _TOOL_S
        ),
        Check("git", lambda: [tool(machine.git())]),
        Check("uv", lambda: [tool(machine.uv())]),
    ]


def _version() -> CheckResult:
    return judge_version.here(__version__, platform.python_version())


def _settings(config: Settings, *, is_node: bool) -> Iterator[CheckResult]:
    given = [row.name for row in config.rows() if row.origin != "default"]
    yield ok("settings", f"{len(given)} given, the others have their defaults")
    for stranger in config.unknown:
        yield warn("settings", stranger, "'corral config' shows those there are")
    if not is_node:
        try:
            config.require_loopback_or_tls()
        except SettingsError as error:
            found, _, fix = error.message.partition(": ")
            yield problem("settings", found, fix)


def _given(config: Settings, name: str, url: SecretStr | None) -> StoreUrl | None:
    from corral.doctor.store import StoreUrl

    if url is None:
        return None
    return StoreUrl(url.get_secret_value(), config.variable(name))


def _home(role: Role) -> CheckResult:
    from corral.doctor.judge import embedded
    from corral.doctor.look import role as look_role

    return embedded.tenant(look_role.tenant(role))


def _manager(
    config: Settings, role: Role, url: str | None, home: Path | None
) -> Iterator[CheckResult]:
    from corral.doctor.judge import manager as judge
    from corral.doctor.look import manager

    is_expected = "manager_url" in config.origins or role.is_running
    told = manager.look(url, home, is_expected=is_expected)
    return judge.judge(told, __version__)


def _as_nodes(role: Role) -> Iterator[CheckResult]:
    from corral.doctor.judge import manager as judge
    from corral.doctor.look import manager

    for node in role.nodes:
        yield from judge.judge(manager.look_as_node(node.identity), __version__)


def _ports(config: Settings, role: Role) -> Iterator[CheckResult]:
    from corral.doctor.look import machine

    children = role.state.children.values() if role.state else ()
    ours = frozenset(mark.pid for mark in children)
    if role.is_manager:
        # Started with --port, it is not where the settings say.
        told = urlsplit(role.state.url).port if role.state and role.is_running else None
        port = machine.port(config.host, told or config.port, ours)
        yield judge_machine.manager_port(port)
    span = _span(config.worker_ports)
    if not span:
        found = f"CORRAL_WORKER_PORTS={config.worker_ports} is no range of ports"
        yield problem("ports", found, "write it like 8092-8111")
        return
    yield judge_machine.worker_ports(list(machine.ports(config.host, span, ours)))


def _span(text: str) -> Sequence[int]:
    low, high = (int(part) for part in text.replace(",", "-").split("-"))
    return range(low, high + 1) if 1 <= low <= high <= 65_535 else ()


def _gpu_check(config: Settings, role: Role) -> Check:
    from corral.agent.gpu_policy import GpuPolicy
    from corral.doctor.judge import gpu as judge
    from corral.doctor.look import gpu

    devices, simulated = config.gpu_devices, config.simulated_gpus
    policy = GpuPolicy(devices, simulated, timeout_s=_PROBE_S)
    name = config.node_name or role.node_name
    state = role.state
    has_agent = state is None or not state.is_running or "agent" in state.children

    def run() -> list[CheckResult]:
        from corral.process.spawn import child_environment

        ledger = role.folder.agents / name / "simulated"
        environment = child_environment(os.environ, "")
        told = gpu.look(policy, name, ledger, environment, is_needed=has_agent)
        return list(judge.judge(told))

    return Check("gpu", run, gpu.timeout_s(policy) + 5.0)


def _disks(config: Settings, role: Role) -> Iterator[CheckResult]:
    from corral.doctor.look import machine

    folder = role.folder
    places = {"home": folder.home}
    if role.is_manager:
        places["data"] = folder.postgres
        if "://" not in config.object_store:
            places["objects"] = Path(config.object_store).absolute()
    places["cache"] = folder.agents
    places["models"] = Path(config.model_cache_dir).absolute()
    places["temp"] = Path(tempfile.gettempdir())
    return (judge_machine.disk(disk) for disk in machine.disks(places))

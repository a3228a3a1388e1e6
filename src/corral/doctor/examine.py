"""The checks of this machine, run side by side; one that hangs costs its own limit.

Nothing a check raises gets further than its own line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from corral.doctor import gpu, machine, manager, store
from corral.doctor import role as roles
from corral.doctor.check import Check, CheckResult, begin, problem
from corral.errors import SettingsError

if TYPE_CHECKING:
    from corral.settings import Settings


def plan(url: str | None = None, home: Path | None = None) -> list[Check]:
    """The checks for this machine; `url` and `home` as given on the command line."""
    from corral.settings import load

    try:
        config = load(manager_url=url, home=home)
    except SettingsError as error:
        found, _, fix = error.message.partition(": ")
        line = problem("settings", found, f"{fix}; more is checked once it is right")
        return [Check("settings", lambda: [line]), *machine.checks()]
    return [*_checks(config, url, home)]


def _checks(config: Settings, url: str | None, home: Path | None) -> Iterator[Check]:
    role = roles.look(Path(config.home).absolute())
    yield Check("version", machine.version)
    yield Check("settings", partial(roles.settings, config, role))
    if role.is_manager:
        yield Check("home", partial(roles.home, role))
        yield Check(store.DATABASE, partial(store.check_database, config, role))
        yield Check(store.REDIS, partial(store.check_redis, config, role))
        yield Check("manager", partial(manager.check, config, role, url, home))
    else:
        yield Check("manager", partial(manager.check_as_nodes, role))
    yield Check("ports", partial(machine.ports, config, role))
    yield gpu.check(config, role)
    yield Check("disk", partial(machine.disks, config, role))
    yield from machine.checks(config.container_host or "")


def examine(checks: Sequence[Check]) -> Iterator[Sequence[CheckResult]]:
    """The lines of each check, in the order of the checks, as they are there."""
    began = time.monotonic()
    running = [(check, begin(check.lines, check.name)) for check in checks]
    for check, future in running:
        left_s = check.timeout_s - (time.monotonic() - began)
        yield _outcome(check, future, max(left_s, 0.0))


def _outcome(
    check: Check, future: Future[list[CheckResult]], left_s: float
) -> Sequence[CheckResult]:
    try:
        error = future.exception(left_s)
    except TimeoutError:
        found = f"no answer within {check.timeout_s:g} s"
        return [problem(check.name, found, "see what keeps it, then try again")]
    if error is None:
        return future.result()
    found = f"the check itself failed: {type(error).__name__}: {error}"
    fix = "tell us; 'corral --debug doctor' shows where"
    return [problem(check.name, " ".join(found.split()), fix)]

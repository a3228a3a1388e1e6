"""Lines about the stores that `corral up` runs itself, running or not."""

from __future__ import annotations

from dataclasses import dataclass

from corral.doctor.result import CheckResult, ok, problem, warn


@dataclass(frozen=True, slots=True)
class EmbeddedStore:
    """A store in the data folder, while nobody runs it.

    `missing` says what program is not there, `broken` what is wrong with the data;
    `made_by` is empty before the first start.
    """

    name: str
    folder: str
    program: str = ""
    missing: str | None = None
    broken: str | None = None
    made_by: str = ""
    is_standin: bool = False


def at_rest(told: EmbeddedStore) -> CheckResult:
    if told.missing:
        found, _, fix = told.missing.partition(": ")
        return problem(told.name, found, fix or "see docs/settings.md")
    if told.broken:
        found = f"the data in {told.folder} cannot be used: {told.broken}"
        fix = "put a backup in its place, or start anew with another folder (--home)"
        return problem(told.name, found, fix)
    if told.is_standin:
        found = "no Redis on this machine: a slow stand-in would be used"
        return warn(told.name, found, "install redis-server or valkey-server")
    state = f", its data in {told.folder} are whole" if told.made_by else ""
    return ok(told.name, f"'corral up' will run {told.program}{state}")


@dataclass(frozen=True, slots=True)
class FolderHolder:
    """Who has the data folder: the pid of `corral up`, and what a dead one left.

    `is_ready` is false while it starts or stops; `owner` is set when the folder is
    another user's.
    """

    home: str
    pid: int | None = None
    is_ready: bool = False
    children: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    owner: str = ""


def tenant(told: FolderHolder) -> CheckResult:
    name = "home"
    if told.owner:
        found = f"the data folder {told.home} belongs to {told.owner}"
        return problem(name, found, "run as that user, or choose a folder (--home)")
    if told.pid is not None and told.is_ready:
        parts = ", ".join(told.children) or "nothing"
        return ok(name, f"'corral up' runs on {told.home}, pid {told.pid}: {parts}")
    if told.pid is not None:
        found = f"'corral up' on {told.home}, pid {told.pid}, starts or stops just now"
        return warn(name, found, f"try again in a moment, or see {told.home}/logs")
    if told.orphans:
        found = f"a 'corral up' that was killed left {', '.join(told.orphans)} behind"
        return warn(name, found, "'corral up' ends them when it starts")
    return ok(name, f"nobody runs on {told.home}; 'corral up' can")

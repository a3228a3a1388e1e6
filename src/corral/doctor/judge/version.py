"""Lines about versions: of this program, and of parts that must fit together."""

from __future__ import annotations

from corral.core.nodes.version import VersionFit, fit
from corral.doctor.result import CheckResult, ok, problem, warn

NAME = "version"


def here(corral: str, python: str) -> CheckResult:
    return ok(NAME, f"Corral {corral} on Python {python}")


def skew(whose: str, theirs: str | None, ours: str) -> CheckResult | None:
    """A line when two versions are not the same; one minor version is tolerated."""
    if not theirs or theirs == ours:
        return None
    found = f"{whose} has version {theirs}, this machine {ours}"
    match fit(theirs, ours):
        case VersionFit.SAME:
            return ok(NAME, found)
        case VersionFit.APART:
            return problem(NAME, found, "install the same version on both")
        case _:
            return warn(NAME, found, "works, but install the same version soon")

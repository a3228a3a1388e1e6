"""Do two versions of Corral fit together? One minor version apart is tolerated."""

from __future__ import annotations

import re
from enum import StrEnum

_NUMBER = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?!\d)")


class VersionFit(StrEnum):
    """How another part's version stands to ours."""

    SAME = "same"
    OLDER = "older"
    NEWER = "newer"
    APART = "apart"

    @property
    def skew(self) -> str | None:
        """`older` or `newer` when that is worth showing."""
        return None if self is VersionFit.SAME else str(self)


def fit(theirs: str | None, ours: str) -> VersionFit:
    """Compare by major and minor version; below 1.0 the minor counts the same.

    Who tells no version is taken to have ours; one that cannot be read fits nothing.
    """
    if not theirs or theirs == ours:
        return VersionFit.SAME
    one, other = _number(theirs), _number(ours)
    if one is None or other is None or one[0] != other[0]:
        return VersionFit.APART
    distance = one[1] - other[1]
    if abs(distance) > 1:
        return VersionFit.APART
    if distance == 0:
        return VersionFit.SAME
    return VersionFit.NEWER if distance > 0 else VersionFit.OLDER


def _number(version: str) -> tuple[int, int] | None:
    found = _NUMBER.match(version)
    return (int(found[1]), int(found[2])) if found else None

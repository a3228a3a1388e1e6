"""Which versions of Corral work together."""

from __future__ import annotations

import pytest

from corral.core.nodes.version import VersionFit, fit


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        ("1.4.0", "1.4.9", VersionFit.SAME),
        ("1.3.9", "1.4.0", VersionFit.OLDER),
        ("1.5.0", "1.4.0", VersionFit.NEWER),
        ("1.5.0.dev3+g12", "1.4.0", VersionFit.NEWER),
        ("v0.2.0", "0.1.0", VersionFit.NEWER),
        ("0.1.0", "0.2.0", VersionFit.OLDER),
        ("0.3.0", "0.1.0", VersionFit.APART),
        ("1.2.0", "1.4.0", VersionFit.APART),
        ("2.0.0", "1.9.0", VersionFit.APART),
        ("0.9.0", "1.0.0", VersionFit.APART),
        ("something", "1.0.0", VersionFit.APART),
        (None, "1.0.0", VersionFit.SAME),
    ],
)
def test_one_minor_version_apart_is_tolerated(
    theirs: str | None, ours: str, found: VersionFit
) -> None:
    assert fit(theirs, ours) is found


def test_only_a_difference_is_shown() -> None:
    assert [f.skew for f in (VersionFit.SAME, VersionFit.OLDER, VersionFit.NEWER)] == [
        None,
        "older",
        "newer",
    ]

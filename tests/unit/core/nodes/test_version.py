"""Which versions of Corral work together."""

from __future__ import annotations

import pytest

from corral.core.nodes.version import Fit, fit


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        ("1.4.0", "1.4.9", Fit.SAME),
        ("1.3.9", "1.4.0", Fit.OLDER),
        ("1.5.0", "1.4.0", Fit.NEWER),
        ("1.5.0.dev3+g12", "1.4.0", Fit.NEWER),
        ("v0.2.0", "0.1.0", Fit.NEWER),
        ("0.1.0", "0.2.0", Fit.OLDER),
        ("0.3.0", "0.1.0", Fit.APART),
        ("1.2.0", "1.4.0", Fit.APART),
        ("2.0.0", "1.9.0", Fit.APART),
        ("0.9.0", "1.0.0", Fit.APART),
        ("something", "1.0.0", Fit.APART),
        (None, "1.0.0", Fit.SAME),
    ],
)
def test_one_minor_version_apart_is_tolerated(
    theirs: str | None, ours: str, found: Fit
) -> None:
    assert fit(theirs, ours) is found


def test_only_a_difference_is_shown() -> None:
    assert [f.skew for f in (Fit.SAME, Fit.OLDER, Fit.NEWER)] == [
        None,
        "older",
        "newer",
    ]

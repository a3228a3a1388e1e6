"""What every test shares: under CORRAL_STRICT=1 a skipped test is a failed one."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

from tests.spec_report import unknown_marks

STRICT = os.environ.get("CORRAL_STRICT", "") not in ("", "0")


def _why(longrepr: Any) -> str:
    """The reason a skip report carries: (file, line, reason), or its text."""
    reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return (
        f"{reason}\n\nSkipped, and CORRAL_STRICT=1 takes a skip for a failure: install "
        "what the test needs, or mark it gpu if it needs a real GPU."
    )


def _fail_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        report.longrepr = _why(report.longrepr)
        report.outcome = "failed"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if STRICT and item.get_closest_marker("gpu") is None:
        _fail_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[
    None, pytest.CollectReport, pytest.CollectReport
]:
    """A file that skips itself whole hides every test in it."""
    report = yield
    if STRICT:
        _fail_skip(report)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if wrong := unknown_marks(items):
        raise pytest.UsageError("\n".join(wrong))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    """Who runs side by side: files do, but two Podmans would wait for each other."""
    uses_podman = "podman_files" in getattr(item, "fixturenames", ())
    return "podman" if uses_podman else str(item.path)

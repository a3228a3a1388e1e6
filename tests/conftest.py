"""What every test shares: under CORRAL_STRICT=1 a skipped test is a failed one."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import inference_extra
from tests.property_examples import STRICT, examples
from tests.spec_report import unknown_marks

# A shell that starts us in the background has us ignore Ctrl-C, and so would every
# process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Thousands of tests and their modules stay to the end: to look through them for cycles
# as often as by default would be a fifth of what finding them costs.
gc.set_threshold(50_000, 20, 100)

# How long an example takes says something about this machine alone; and what CI finds
# should be found again by running it again.
settings.register_profile(
    "corral",
    deadline=None,
    derandomize=STRICT,
    max_examples=examples(),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("corral")


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


LEFT_OUT: set[Path] = set()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without PyTorch tests of the extra `inference` are left out."""
    if STRICT or inference_extra.is_there() or collection_path.suffix != ".py":
        return None
    if not inference_extra.needs_it(collection_path):
        return None
    LEFT_OUT.add(collection_path)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LEFT_OUT:
        terminalreporter.line(
            f"left out {len(LEFT_OUT)} test files of the extra 'inference': PyTorch is "
            "not installed ('make setup-dev' tries to)"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if wrong := unknown_marks(items):
        raise pytest.UsageError("\n".join(wrong))


def pytest_collection_finish() -> None:
    """What was imported for tests stays to the end: no collection need look at it."""
    _look_once()


def _look_once() -> None:
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    # pytest itself collects five times now, for errors in what was left unclosed.
    _look_once()
    # Most runs start no cluster, and should not import what one needs.
    if (cluster := sys.modules.get("tests.acceptance.cluster")) is not None:
        cluster.forget_database()

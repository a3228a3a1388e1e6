"""Checks side by side: order, limits, faults."""

from __future__ import annotations

import logging
import threading

import pytest

from corral.doctor.check import (
    Check,
    CheckResult,
    CheckStatus,
    count,
    ok,
    problem,
    warn,
)
from corral.doctor.examine import examine


def fine(name: str) -> Check:
    return Check(name, lambda: [ok(name, "fine")])


def lines(checks: list[Check]) -> list[CheckResult]:
    return [line for found in examine(checks) for line in found]


def test_a_hanging_check_costs_its_limit_and_hides_nothing() -> None:
    for_ever = threading.Event()

    def hang() -> list[CheckResult]:
        for_ever.wait()
        return []

    found = lines([fine("a"), Check("b", hang, timeout_s=0.1), fine("c")])
    for_ever.set()
    assert [line.name for line in found] == ["a", "b", "c"]
    assert found[1].verdict is CheckStatus.PROBLEM
    assert "no answer within 0.1 s" in found[1].found


def test_a_check_that_raises_is_a_line_and_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> list[CheckResult]:
        raise LookupError("two\nlines")

    with caplog.at_level(logging.CRITICAL, "corral.doctor"):
        found = lines([Check("a", fail), fine("b")])
    assert found[0].verdict is CheckStatus.PROBLEM
    assert found[0].found == "the check itself failed: LookupError: two lines"
    assert found[1].verdict is CheckStatus.OK


def test_verdicts_are_counted() -> None:
    found = [ok("a", ""), warn("a", "", ""), problem("a", "", ""), warn("b", "", "")]
    assert count(found, CheckStatus.PROBLEM) == 1
    assert count(found, CheckStatus.WARN) == 2

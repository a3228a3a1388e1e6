"""What a check is and what it says: lines, each with a verdict and what to do.

Each subject's module has what is looked at, facts as values, and how they are judged:
looks judge nothing and keep nothing open, judges see facts alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

LOG = logging.getLogger("corral.doctor")
T = TypeVar("T")


class CheckStatus(StrEnum):
    OK = "ok"
    WARN = "warn"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`fix` is what to do, empty for what is well; `facts` are figures for programs."""

    name: str
    verdict: CheckStatus
    found: str
    fix: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def ok(name: str, found: str, /, **facts: Any) -> CheckResult:
    return CheckResult(name, CheckStatus.OK, found, facts=facts)


def warn(name: str, found: str, fix: str, /, **facts: Any) -> CheckResult:
    return CheckResult(name, CheckStatus.WARN, found, fix, facts)


def problem(name: str, found: str, fix: str, /, **facts: Any) -> CheckResult:
    return CheckResult(name, CheckStatus.PROBLEM, found, fix, facts)


def count(lines: Iterable[CheckResult], verdict: CheckStatus) -> int:
    return sum(line.verdict is verdict for line in lines)


@dataclass(frozen=True, slots=True)
class Check:
    """One part's look and judgement."""

    name: str
    run: Callable[[], Iterable[CheckResult]]
    timeout_s: float = 10.0

    def lines(self) -> list[CheckResult]:
        return list(self.run())


def begin(job: Callable[[], T], name: str) -> Future[T]:
    """Run `job` on a thread that nothing waits for at the end of the process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(job())
        except Exception as error:
            LOG.exception("the check of %s failed", name)
            future.set_exception(error)

    threading.Thread(target=run, name=f"check {name}", daemon=True).start()
    return future

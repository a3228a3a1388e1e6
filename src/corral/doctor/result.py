"""What a check says: one line, its verdict, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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

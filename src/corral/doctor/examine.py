"""Runs checks side by side; one that hangs costs its own time limit and no more.

Nothing a check raises gets further than its own line.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from corral.doctor.result import CheckResult, problem

LOG = logging.getLogger("corral.doctor")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Check:
    """One part's look and judgement."""

    name: str
    run: Callable[[], Sequence[CheckResult]]
    timeout_s: float = 10.0


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


def examine(checks: Sequence[Check]) -> Iterator[Sequence[CheckResult]]:
    """The lines of each check, in the order of the checks, as they are there."""
    began = time.monotonic()
    running = [(check, begin(check.run, check.name)) for check in checks]
    for check, future in running:
        left_s = check.timeout_s - (time.monotonic() - began)
        yield _outcome(check, future, max(left_s, 0.0))


def _outcome(
    check: Check, future: Future[Sequence[CheckResult]], left_s: float
) -> Sequence[CheckResult]:
    try:
        error = future.exception(left_s)
    except TimeoutError:
        found = f"no answer within {check.timeout_s:g} s"
        return [problem(check.name, found, "see what keeps it, then try again")]
    if error is None:
        return future.result()
    found = f"the check itself failed: {type(error).__name__}: {error}"
    fix = "tell us; 'corral --debug doctor' shows where"
    return [problem(check.name, " ".join(found.split()), fix)]

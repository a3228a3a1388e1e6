"""Says in the worker's log which tasks it has, each under the id of its request.

Of tasks that are over within a second, which may be thousands, it says so quietly.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from corral.worker.protocol import Item, Outcome

log = logging.getLogger("corral.worker")
_FOLLOWED_S = 1.0


def received(items: Sequence[Item]) -> None:
    """These attempts have come in an order."""
    if log.isEnabledFor(logging.DEBUG):
        for item in items:
            log.debug("task_received", extra=_told(item))


def finished(items: Sequence[Item], outcomes: Sequence[Outcome]) -> None:
    """These outcomes are about to be reported, of some or all of the attempts."""
    says_all = log.isEnabledFor(logging.DEBUG)
    known: dict[tuple[str, int], Item] | None = None
    for outcome in outcomes:
        is_told = outcome.duration_s >= _FOLLOWED_S or outcome.kind in _LOUD
        if not (is_told or says_all):
            continue
        known = {item.key: item for item in items} if known is None else known
        item = known.get((outcome.task_id, outcome.attempt))
        if item is not None:
            level = logging.INFO if is_told else logging.DEBUG
            log.log(level, "task_finished", extra=_told(item) | _ended(outcome))


_LOUD = frozenset({"failed", "timed_out", "lost"})


def _told(item: Item) -> dict[str, Any]:
    told: dict[str, Any] = {
        "task_id": item.task_id,
        "attempt": item.attempt,
        "task_type": item.job_type,
    }
    if item.request_id:
        told["request_id"] = item.request_id
    return told


def _ended(outcome: Outcome) -> dict[str, Any]:
    told: dict[str, Any] = {
        "outcome": outcome.kind,
        "duration_s": round(outcome.duration_s, 6),
    }
    if outcome.error is not None:
        told["error"] = outcome.error.message[:500]
    return told

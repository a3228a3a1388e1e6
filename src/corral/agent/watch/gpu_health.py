"""Keeps count of the hardware errors of this node's cards, a breaker for each.

It reads no card: it is shown what the probes found, and what workers died of. Its
verdicts are in a file, so that a quarantine outlives the agent.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from corral.core.nodes.breaker import Breaker, BreakerPolicy, BreakerState
from corral.core.nodes.gpu import Gpu, GpuHealth, Quarantine

LOG = logging.getLogger("corral.agent")
FILE = "quarantine.json"
# Words of a dying worker that blame the card, not the code that ran on it.
_BLAMES_CARD = re.compile(
    r"uncorrectable (?:ECC|NVLink)|\bXid\b|fallen off the bus|GPU is lost"
    r"|CUDA error: (?:unknown|hardware)|cudaErrorUnknown|cudaErrorHardwareStackError"
    r"|hipErrorECCNotCorrectable",
    re.IGNORECASE,
)
# Kinds of errors a driver keeps, and does not always tell.
_STANDING = ("ecc", "ras", "rows", "pages")
_LONGEST_REASON = 200
_TRIAL = "trial"


def blames_card(text: str) -> bool:
    """Does a worker's last word say that its card is broken?"""
    return _BLAMES_CARD.search(text) is not None


@dataclass(frozen=True, slots=True)
class _CardHealth:
    """What is known of one card; `is_dirty`: an error came while it was left alone."""

    breaker: Breaker
    counted: Mapping[str, int] | None = None
    is_dirty: bool = False
    tried_at: float = 0.0


class GpuBreakers:
    """The cards' breakers. Errors count from the first reading on.

    A card in quarantine is left alone until its time is over. Then, when it can be
    read and counted no more errors, it is offered on trial: one error within the
    window sends it back for twice as long, none ends the case.
    """

    def __init__(
        self,
        policy: BreakerPolicy,
        folder: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._policy = policy
        self._file = folder / FILE
        self._clock = clock
        self._lock = threading.Lock()
        self._cases: dict[str, _CardHealth] = {}
        self._kept = ""
        self._load()

    def review(self, cards: Sequence[Gpu]) -> list[Gpu]:
        """The same cards with their health, after counting what is new."""
        now = self._clock()
        with self._lock:
            for card in cards:
                case = self._cases.get(card.id) or _CardHealth(Breaker(self._policy))
                self._cases[card.id] = self._move_on(_read(case, card, now), card, now)
            self._save()
            return [self._judged(card) for card in cards]

    def blame(self, gpu_id: str, reason: str) -> None:
        """Count an error that something else than the driver told of."""
        LOG.warning("GPU %s: %s", gpu_id, reason)
        with self._lock:
            case = self._cases.get(gpu_id) or _CardHealth(Breaker(self._policy))
            self._cases[gpu_id] = _fail(case, reason, self._clock())
            self._save()

    def release(self, gpu_id: str, since: datetime) -> bool:
        """Lift the quarantine that began at `since`; false when it is another."""
        with self._lock:
            case = self._cases.get(gpu_id)
            if case is None or case.breaker.state is not BreakerState.OPEN:
                return False
            if _moment(case.breaker.opened_at) != since:
                return False
            fresh = Breaker(self._policy)
            self._cases[gpu_id] = replace(case, breaker=fresh, is_dirty=False)
            self._save()
        LOG.info("GPU %s was released from quarantine", gpu_id)
        return True

    def _move_on(self, case: _CardHealth, card: Gpu, now: float) -> _CardHealth:
        breaker = case.breaker
        if breaker.state is BreakerState.OPEN and breaker.allows(now):
            tried = breaker.begin(now, _TRIAL)
            if card.error is None and not case.is_dirty:
                LOG.info("GPU %s is tried again", card.id)
                return replace(case, breaker=tried, tried_at=now)
            failed = tried.fail(now, _TRIAL, card.error or breaker.error)
            return replace(case, breaker=failed, is_dirty=False)
        is_on_trial = breaker.state is BreakerState.HALF_OPEN
        if is_on_trial and now - case.tried_at >= self._policy.window_s:
            return replace(case, breaker=breaker.succeed(_TRIAL))
        return case

    def _judged(self, card: Gpu) -> Gpu:
        breaker = self._cases[card.id].breaker
        if breaker.state is not BreakerState.OPEN:
            return card
        since = _moment(breaker.opened_at)
        pause_s = self._policy.pause_s(breaker.openings)
        until = _moment(breaker.opened_at + pause_s)
        held = Quarantine(breaker.error, since, until)
        return replace(card, health=GpuHealth.QUARANTINED, quarantine=held)

    def _load(self) -> None:
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
            cases = {str(name): _unpacked(row, self._policy) for name, row in told}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            LOG.warning("what %s says of GPUs cannot be read: %s", self._file, error)
            return
        self._cases = cases

    def _save(self) -> None:
        """Write down what is open or on trial, when that has changed."""
        open_ones = [
            (name, _packed(case))
            for name, case in sorted(self._cases.items())
            if not case.breaker.is_closed
        ]
        text = json.dumps(open_ones)
        if text == self._kept or (not open_ones and not self._file.exists()):
            return
        draft = self._file.with_suffix(".draft")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._file)
            self._kept = text
        except OSError as error:
            LOG.warning("a quarantine cannot be written down: %s", error)


def _read(case: _CardHealth, card: Gpu, now: float) -> _CardHealth:
    """Count what the driver counted since the last reading."""
    if card.error is not None:
        return case
    was_open = case.breaker.state is BreakerState.OPEN
    for reason in _news(case, card):
        if was_open or case.breaker.state is not BreakerState.OPEN:
            case = _fail(case, reason, now)
    return replace(case, counted=dict(card.errors))


def _news(case: _CardHealth, card: Gpu) -> Iterator[str]:
    former = case.counted
    for kind, total in sorted(card.errors.items()):
        # Standing figures that were not told before are no news, events are. One that
        # fell was set back: with the driver, or its reader.
        unknown = total if kind.startswith(_STANDING) else 0
        known = total if former is None else former.get(kind, unknown)
        for _ in range(min(total - known, case.breaker.policy.failures)):
            yield f"{_name(kind)}, {total} in all"


def _fail(case: _CardHealth, reason: str, now: float) -> _CardHealth:
    was_open = case.breaker.state is BreakerState.OPEN
    text = reason[:_LONGEST_REASON]
    failed = case.breaker.fail(now, _TRIAL, text)
    if failed.state is BreakerState.OPEN and not was_open:
        LOG.warning("a GPU is quarantined: %s", text)
    return replace(case, breaker=failed, is_dirty=was_open)


def _name(kind: str) -> str:
    return kind.replace("_", " ").replace("xid", "Xid").replace("ecc", "ECC")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def _packed(case: _CardHealth) -> dict[str, Any]:
    breaker = case.breaker
    return {
        "state": str(breaker.state),
        "opened_at": breaker.opened_at,
        "openings": breaker.openings,
        "error": breaker.error,
        "tried_at": case.tried_at,
        "is_dirty": case.is_dirty,
    }


def _unpacked(row: Mapping[str, Any], policy: BreakerPolicy) -> _CardHealth:
    state = BreakerState(row["state"])
    breaker = Breaker(
        policy,
        state,
        opened_at=float(row["opened_at"]),
        openings=int(row["openings"]),
        probe=_TRIAL if state is BreakerState.HALF_OPEN else None,
        error=str(row["error"]),
    )
    tried_at, is_dirty = float(row["tried_at"]), bool(row["is_dirty"])
    return _CardHealth(breaker, is_dirty=is_dirty, tried_at=tried_at)

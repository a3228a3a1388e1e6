"""When a finding becomes an alert, and when the alert is over: hysteresis.

Pure: what is open or about to be goes in, what it is now and what changed comes out.
There is one alert for a rule and a subject at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from corral.core.insight.health import Finding
from corral.core.insight.health_rule import BY_NAME

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WatchedFinding:
    """A finding that holds since a time (any clock that never goes back)."""

    finding: Finding
    since: float
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class AlertChange:
    """What one look made of the watches.

    `worsened` are open alerts with a severity they never had before.
    """

    watches: Mapping[Key, WatchedFinding] = field(default_factory=dict)
    raised: tuple[Finding, ...] = ()
    worsened: tuple[Finding, ...] = ()
    resolved: tuple[Key, ...] = ()

    @property
    def is_news(self) -> bool:
        return bool(self.raised or self.worsened or self.resolved)


def follow(
    watches: Mapping[Key, WatchedFinding],
    findings: Iterable[Finding],
    now: float,
    after_s: float,
    unheard: frozenset[str] = frozenset(),
) -> AlertChange:
    """Go on from `watches` with what was found at `now`.

    Args:
        watches: As the look before left them.
        findings: All that is wrong or nearly so; see `Finding.is_over`.
        now: Seconds.
        after_s: How long a finding must hold before it is an alert, unless its rule
            says at once.
        unheard: Nodes nothing is known of now: their alerts stay as they are.
    """
    found = {finding.key: finding for finding in findings}
    after: dict[Key, WatchedFinding] = {}
    raised, worsened = [], []
    for key, finding in found.items():
        watch = watches.get(key)
        if watch is not None and watch.is_open:
            finding = _worst(watch.finding, finding)
            if finding.severity is not watch.finding.severity:
                worsened.append(finding)
            after[key] = replace(watch, finding=finding)
        elif finding.is_over:
            since = now if watch is None else watch.since
            is_open = _is_due(finding, now - since, after_s)
            after[key] = WatchedFinding(finding, since, is_open)
            raised += [finding] if is_open else []
    gone = [k for k, watch in watches.items() if watch.is_open and k not in found]
    for key in gone:
        if _is_unheard(watches[key].finding, unheard):
            after[key] = watches[key]
    resolved = tuple(key for key in gone if key not in after)
    return AlertChange(after, tuple(raised), tuple(worsened), resolved)


def _worst(before: Finding, now: Finding) -> Finding:
    """What is found now; an open alert becomes worse but never better."""
    if now.value is None and before.value is not None:
        return before
    if now.severity.rank >= before.severity.rank:
        return now
    return replace(now, severity=before.severity)


def _is_due(finding: Finding, held_s: float, after_s: float) -> bool:
    return held_s >= after_s or BY_NAME[finding.rule].is_at_once


def _is_unheard(finding: Finding, unheard: frozenset[str]) -> bool:
    rule = BY_NAME.get(finding.rule)
    return finding.node_id in unheard and rule is not None and rule.is_told_by_node

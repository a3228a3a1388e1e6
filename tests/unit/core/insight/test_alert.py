"""Hysteresis: what lasts is raised once, and is over when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.insight.alert import Key, WatchedFinding, follow
from corral.core.insight.health import (
    ClusterSnapshot,
    Finding,
    NodeReading,
    Severity,
    Thresholds,
)
from corral.core.insight.health_rule import judge
from tests.unit.core.insight.test_health import NODE, SAMPLE

LIMITS = Thresholds(disk_percent=90.0, clear_share=0.9)
OVER = Finding("node_disk", "n1", Severity.WARNING, "disk", 95.0, 90.0, "n1")
NEAR = replace(OVER, is_over=False)
WORSE = replace(OVER, severity=Severity.CRITICAL)
LOST = Finding("node_lost", "n1", Severity.ERROR, "lost", node_id="n1")
Step = tuple[float, Sequence[Finding]]


def story(*steps: Step, after_s: float = 60.0) -> str:
    """What each look brought: R(aised), W(orsened), resolved (O)ver or nothing (.)."""
    watches: Mapping[Key, WatchedFinding] = {}
    told = []
    for now, findings in steps:
        change = follow(watches, findings, now, after_s)
        watches = change.watches
        letters = "R" * len(change.raised) + "W" * len(change.worsened)
        told.append(letters + "O" * len(change.resolved) or ".")
        assert change.is_news == (told[-1] != ".")
    return " ".join(told)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([(0, [OVER]), (59, [OVER]), (60, [OVER]), (99, [OVER])], ". . R ."),
        ([(0, [OVER]), (30, []), (60, [OVER]), (119, [OVER])], ". . . ."),
        ([(0, [OVER]), (30, [NEAR]), (60, [OVER]), (119, [OVER])], ". . . ."),
        ([(0, [NEAR]), (100, [NEAR])], ". ."),
        ([(0, [OVER]), (60, [OVER]), (70, [NEAR]), (80, [OVER])], ". R . ."),
        ([(0, [OVER]), (60, [OVER]), (70, []), (80, [OVER])], ". R O ."),
        ([(0, [LOST]), (1, [LOST]), (2, []), (3, [LOST])], "R . O R"),
        ([(0, [LOST, OVER]), (60, [LOST, OVER]), (61, [])], "R R OO"),
        ([(0, [OVER]), (60, [WORSE]), (61, [OVER]), (62, [WORSE])], ". R . ."),
        ([(0, [OVER]), (60, [OVER]), (61, [WORSE]), (62, [OVER])], ". R W ."),
        ([(0, [OVER]), (60, [OVER]), (61, [WORSE]), (62, [])], ". R W O"),
    ],
)
def test_an_alert_lives_by_the_table(steps: list[Step], told: str) -> None:
    assert story(*steps) == told


def test_with_no_wait_a_finding_is_raised_at_once() -> None:
    assert story((0, [OVER]), (0, [OVER]), after_s=0.0) == "R ."


def test_an_open_alert_never_looks_better_than_it_was() -> None:
    watches = {OVER.key: WatchedFinding(WORSE, 0.0, is_open=True)}
    change = follow(watches, [OVER], 1.0, 60.0)
    assert change.watches[OVER.key].finding.severity is Severity.CRITICAL
    assert not change.is_news


def test_an_alert_keeps_its_words_while_nothing_is_known() -> None:
    watches = {OVER.key: WatchedFinding(OVER, 0.0, is_open=True)}
    unknown = replace(NEAR, value=None, title="nobody knows")
    assert follow(watches, [unknown], 1.0, 60.0).watches == watches


def test_alerts_of_a_node_nobody_has_heard_of_stay_but_its_loss_is_known() -> None:
    watches = {f.key: WatchedFinding(f, 0.0, is_open=True) for f in (OVER, LOST)}
    change = follow(watches, [], 1.0, 60.0, frozenset({"n1"}))
    assert set(change.watches) == {OVER.key}
    assert change.resolved == (LOST.key,)
    assert follow(change.watches, [], 2.0, 60.0).resolved == (OVER.key,)


def test_what_is_about_to_be_an_alert_is_forgotten_with_its_node() -> None:
    pending = follow({}, [OVER], 0.0, 60.0).watches
    assert follow(pending, [], 1.0, 60.0, frozenset({"n1"})).watches == {}


def test_an_alert_of_a_rule_that_is_no_more_is_over() -> None:
    old = replace(OVER, rule="node_colour")
    watches = {old.key: WatchedFinding(old, 0.0, is_open=True)}
    assert follow(watches, [], 1.0, 60.0, frozenset({"n1"})).resolved == (old.key,)


looks = st.lists(
    st.tuples(st.floats(0.1, 100.0), st.floats(0.0, 100.0), st.booleans()),
    max_size=30,
)


@given(looks, st.floats(0.0, 200.0))
def test_never_two_for_one_subject_and_never_over_above_the_line(
    steps: list[tuple[float, float, bool]], after_s: float
) -> None:
    watches: Mapping[Key, WatchedFinding] = {}
    now, is_open, held_since = 0.0, False, None
    for pause_s, disk, is_heard in steps:
        now += pause_s
        sample = replace(SAMPLE, disk_used_gb=disk)
        node = NodeReading(NODE, sample if is_heard else None, (), is_heard=is_heard)
        snapshot = ClusterSnapshot(nodes=(node,))
        findings = judge(snapshot, LIMITS)
        change = follow(watches, findings, now, after_s, snapshot.unheard)
        watches = change.watches
        is_over = is_heard and disk >= 90.0
        held_since = (
            (held_since if held_since is not None else now) if is_over else None
        )
        assert len(change.raised) + len(change.resolved) <= 1
        if change.raised:
            assert not is_open
            assert held_since is not None
            assert now - held_since >= after_s
        if change.resolved:
            assert is_open
            assert is_heard
            assert disk < 0.9 * 90.0
        is_open = (is_open or bool(change.raised)) and not change.resolved
        assert is_open == any(watch.is_open for watch in watches.values())

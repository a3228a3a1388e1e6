"""What becomes of a task when an attempt ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.tasks.outcome import Outcome, OutcomeKind, RetryPolicy, settle
from corral.core.tasks.task import TRANSITIONS, State, Task, TaskError, TaskSpec
from corral.errors import IllegalTransition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = RetryPolicy()
luck = st.floats(0.0, 1.0, exclude_max=True)
policies = st.builds(
    RetryPolicy,
    base_s=st.floats(0.01, 60.0),
    factor=st.floats(1.0, 10.0),
    cap_s=st.floats(0.01, 1000.0),
    jitter=st.floats(0.0, 1.0),
)


def make(
    *, retries: int = 0, state: State = State.RUNNING, tries: int = 0, losses: int = 0
) -> Task:
    spec = TaskSpec("t", "echo", "{}", retries=retries)
    return Task(
        spec, state, NOW, attempt=tries + losses + 1, tries=tries, losses=losses
    )


def ended(task: Task, kind: OutcomeKind) -> Outcome:
    error = None if kind is OutcomeKind.COMPLETED else TaskError("x", "it broke")
    return Outcome(task.id, task.attempt, kind, error=error)


@given(policies, st.integers(0, 10**6), luck)
def test_a_delay_stays_within_its_cap_and_jitter(
    policy: RetryPolicy, failures: int, chance: float
) -> None:
    delay = policy.delay_s(failures, chance)
    middle = policy.delay_s(failures, 0.5)
    assert middle <= policy.cap_s
    assert middle * (1 - policy.jitter) <= delay + 1e-9
    assert delay <= middle * (1 + policy.jitter) + 1e-9


@given(policies, st.integers(1, 100))
def test_each_delay_is_at_least_as_long_as_the_one_before(
    policy: RetryPolicy, failures: int
) -> None:
    assert policy.delay_s(failures + 1, 0.5) >= policy.delay_s(failures, 0.5)


def test_delays_double_from_a_second_to_the_cap() -> None:
    delays = [POLICY.delay_s(n, 0.5) for n in range(1, 10)]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 100, 100]


def test_luck_spreads_the_herd() -> None:
    assert POLICY.delay_s(1, 0.0) == pytest.approx(0.8)
    assert POLICY.delay_s(1, 0.999) == pytest.approx(1.2, abs=0.01)


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.TIMED_OUT])
@given(retries=st.integers(0, 10), tries=st.integers(0, 12), chance=luck)
def test_a_failure_is_tried_again_until_its_retries_are_used_up(
    kind: OutcomeKind, retries: int, tries: int, chance: float
) -> None:
    task = make(retries=retries, tries=tries)
    row = settle(task, ended(task, kind), NOW, POLICY, chance)
    assert (row.tries, row.losses) == (tries + 1, 0)
    assert row.error == TaskError("x", "it broke")
    if tries + 1 <= retries:
        assert row.state is State.QUEUED
        assert row.run_after is not None
        assert row.run_after > NOW
        assert row.dead_letter is None
    else:
        assert str(row.state) == str(kind)
        assert row.dead_letter == str(kind)
        assert row.run_after is None


def test_one_try_is_the_default() -> None:
    task = make()
    row = settle(task, ended(task, OutcomeKind.FAILED), NOW, POLICY, 0.5)
    assert (row.state, row.dead_letter) == (State.FAILED, "failed")


@given(losses=st.integers(0, 5), retries=st.integers(0, 5))
def test_the_third_worker_lost_under_a_task_makes_it_poison(
    losses: int, retries: int
) -> None:
    task = make(retries=retries, losses=losses)
    row = settle(task, ended(task, OutcomeKind.LOST), NOW, POLICY, 0.5)
    assert (row.tries, row.losses) == (0, losses + 1)
    if losses + 1 < 3:
        assert (row.state, row.dead_letter) == (State.QUEUED, None)
    else:
        assert (row.state, row.dead_letter) == (State.FAILED, "poison")
        assert row.error is not None
        assert row.error.kind == "poison"
        assert "it broke" in row.error.message


@pytest.mark.parametrize("state", [State.QUEUED, State.ASSIGNED, State.RUNNING])
@given(tries=st.integers(0, 5), losses=st.integers(0, 2))
def test_a_returned_task_is_charged_nothing_and_may_start_at_once(
    state: State, tries: int, losses: int
) -> None:
    task = make(state=state, tries=tries, losses=losses)
    row = settle(task, ended(task, OutcomeKind.RETURNED), NOW, POLICY, 0.5)
    assert row.state is State.QUEUED
    assert (row.tries, row.losses) == (tries, losses)
    assert row.run_after is None


def test_a_completed_task_carries_its_result() -> None:
    task = make(state=State.ASSIGNED)
    began = NOW - timedelta(seconds=3)
    outcome = replace(
        ended(task, OutcomeKind.COMPLETED), result='{"a":1}', started_at=began
    )
    row = settle(task, outcome, NOW, POLICY, 0.5)
    assert (row.state, row.result) == (State.COMPLETED, '{"a":1}')
    assert (row.started_at, row.finished_at) == (began, NOW)
    assert (row.tries, row.dead_letter) == (0, None)


def test_no_worker_completes_what_none_has() -> None:
    task = make(state=State.QUEUED)
    with pytest.raises(IllegalTransition, match="no worker has it"):
        settle(task, ended(task, OutcomeKind.COMPLETED), NOW, POLICY, 0.5)


@given(
    st.sampled_from([State.ASSIGNED, State.RUNNING]),
    st.sampled_from(OutcomeKind),
    st.integers(0, 5),
    st.integers(0, 3),
)
def test_whatever_ends_an_attempt_makes_a_legal_move(
    state: State, kind: OutcomeKind, retries: int, losses: int
) -> None:
    task = make(retries=retries, state=state, losses=losses)
    row = settle(task, ended(task, kind), NOW, POLICY, 0.5)
    assert row.state in TRANSITIONS[state]
    assert row.attempt == task.attempt

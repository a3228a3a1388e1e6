"""The states of a task, priorities and names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.tasks.job_type import check_name, job_type_of
from corral.core.tasks.priority import PRIORITY_LIMIT, parse_priority
from corral.core.tasks.task import LIVE, TERMINAL, TRANSITIONS, State, advance
from corral.errors import IllegalTransition, InvalidField

states = st.sampled_from(State)


@given(states, states)
def test_a_state_changes_only_along_the_table(old: State, new: State) -> None:
    if new in TRANSITIONS[old]:
        assert advance(old, new) is new
    else:
        with pytest.raises(IllegalTransition) as caught:
            advance(old, new)
        assert caught.value.details == {"old": old, "new": new}


def test_every_state_is_either_live_or_terminal() -> None:
    assert frozenset(State) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
    assert set(TRANSITIONS) == set(State)


@given(st.sampled_from(sorted(TERMINAL)))
def test_the_only_way_out_of_a_terminal_state_is_back_to_the_queue(old: State) -> None:
    assert TRANSITIONS[old] == {State.QUEUED}


@given(st.lists(states, max_size=12))
def test_no_walk_reaches_running_without_being_assigned_first(
    walk: list[State],
) -> None:
    now, passed = State.QUEUED, {State.QUEUED}
    for step in walk:
        if step in TRANSITIONS[now]:
            now = advance(now, step)
            passed.add(now)
    assert State.RUNNING not in passed or State.ASSIGNED in passed


@pytest.mark.parametrize("ended", sorted(TERMINAL))
def test_an_assigned_task_may_end_without_having_been_seen_running(
    ended: State,
) -> None:
    assert advance(State.ASSIGNED, ended) is ended


@pytest.mark.parametrize(
    ("word", "number"), [("low", -10), ("normal", 0), ("high", 10), ("critical", 100)]
)
def test_a_priority_word_is_its_number(word: str, number: int) -> None:
    assert parse_priority(word) == number


@given(st.integers(-PRIORITY_LIMIT, PRIORITY_LIMIT))
def test_an_integer_priority_is_taken_as_it_is(number: int) -> None:
    assert parse_priority(number) == number


@pytest.mark.parametrize("wrong", ["urgent", "", "10", True, 10**6 + 1, -(10**30)])
def test_a_priority_that_is_neither_names_the_field(wrong: int | str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_priority(wrong)
    assert caught.value.field == "priority"


@given(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z"))
def test_a_plain_name_is_accepted(name: str) -> None:
    assert check_name(name, "task_type") == name


@pytest.mark.parametrize(
    "wrong", ["", "-x", "a b", "a/b", "ä", "a\n", "a\x00", "\ud800", "x" * 129]
)
def test_a_name_with_anything_else_in_it_names_the_field(wrong: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check_name(wrong, "task_type")
    assert caught.value.field == "task_type"


@pytest.mark.parametrize(
    ("worker_class", "job_type"),
    [
        ("corral.worker.builtin:EchoWorker", "echo"),
        ("mine.RunScriptWorker", "run_script"),
        ("pkg:Resize", "resize"),
        ("Worker", "worker"),
    ],
)
def test_a_class_serves_the_type_its_name_says(
    worker_class: str, job_type: str
) -> None:
    assert job_type_of(worker_class) == job_type

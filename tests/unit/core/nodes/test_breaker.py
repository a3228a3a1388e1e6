"""The breaker by itself: what opens it, how long, and who closes it again."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from corral.core.nodes.breaker import Breaker, BreakerPolicy, BreakerState
from tests.property_examples import examples

POLICY = BreakerPolicy(failures=3, window_s=10.0, cooldown_s=5.0, longest_s=20.0)
WHO = ("a", "b", "c")


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker(POLICY)
    for _ in range(POLICY.failures):
        breaker = breaker.fail(at, "a", "no module")
    assert breaker.state is BreakerState.OPEN
    return breaker


@pytest.mark.spec("C50")
def test_it_opens_after_the_set_number_of_failures_within_the_window() -> None:
    breaker = Breaker(POLICY).fail(0.0, "a", "x").fail(1.0, "b", "x")
    assert breaker.is_closed
    assert breaker.fail(9.0, "a", "x").state is BreakerState.OPEN
    assert breaker.fail(10.5, "a", "x").is_closed, "the first is forgotten by then"


def test_while_it_is_open_nobody_may_begin_until_the_cool_down_is_over() -> None:
    breaker = opened(at=100.0)
    assert not breaker.allows(104.9)
    assert breaker.next_probe_s(102.0) == 3.0
    with pytest.raises(ValueError, match="may not begin"):
        breaker.begin(104.9, "a")
    assert breaker.allows(105.0)


def test_exactly_one_probe_begins_and_its_success_closes_it() -> None:
    breaker = opened().begin(5.0, "b")
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.allows(50.0)
    assert breaker.succeed("a") == breaker, "another's success says nothing"
    assert breaker.succeed("b") == Breaker(POLICY)


def test_each_failed_probe_doubles_the_cool_down_up_to_the_cap() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(4):
        pauses.append(breaker.next_probe_s(now))
        now += pauses[-1]
        breaker = breaker.begin(now, "a").fail(now, "a", "still no module")
    assert pauses == [5.0, 10.0, 20.0, 20.0]
    closed = breaker.begin(now + 20.0, "a").succeed("a")
    for _ in range(POLICY.failures):
        closed = closed.fail(100.0, "a", "x")
    assert closed.next_probe_s(100.0) == 5.0, "it starts over"


def test_a_straggler_that_fails_neither_lengthens_nor_decides() -> None:
    breaker = opened().fail(3.0, "c", "killed")
    assert (breaker.error, breaker.next_probe_s(3.0)) == ("killed", 2.0)
    probing = breaker.begin(5.0, "a").fail(6.0, "c", "killed")
    assert probing.state is BreakerState.HALF_OPEN


def test_a_probe_that_is_stopped_leaves_its_turn_at_once() -> None:
    breaker = opened().begin(5.0, "a").abandon("a")
    assert breaker.allows(5.0)
    assert breaker.begin(5.0, "b").probe == "b"


def test_what_it_says_names_the_count_the_wait_and_the_last_error() -> None:
    breaker = opened(at=1.0)
    assert breaker.report("k", 3.0).text == (
        "breaker open: 3 failures in 10 s, next try in 3 s: no module"
    )
    assert breaker.report("k", 3.0).age_s == 2.0
    tried = breaker.begin(6.0, "a").report("k", 6.0).text
    assert tried == "breaker half-open: it is being tried again: no module"


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens in whatever order, over an hour."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(POLICY)
        self.now = 0.0
        self.probes: set[str] = set()
        self.opened_at: float | None = None

    def put(self, breaker: Breaker) -> None:
        was = self.breaker.state
        self.breaker = breaker
        if breaker.state is BreakerState.OPEN and was is not BreakerState.OPEN:
            self.opened_at = breaker.opened_at

    @rule(seconds=st.floats(0.0, 30.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=st.sampled_from(WHO))
    def begin(self, who: str) -> None:
        if not self.breaker.allows(self.now):
            return
        if not self.breaker.is_closed:
            assert not self.probes, "never two probes at once"
            assert self.opened_at is not None
            assert self.now >= self.opened_at + POLICY.cooldown_s
            self.probes.add(who)
        self.put(self.breaker.begin(self.now, who))

    @rule(who=st.sampled_from(WHO))
    def fail(self, who: str) -> None:
        before = self.breaker
        self.put(before.fail(self.now, who, "x"))
        assert self.breaker.is_closed <= before.is_closed, "no failure closes it"
        self.probes.discard(who)

    @rule(who=st.sampled_from(WHO))
    def succeed(self, who: str) -> None:
        was_closed, was_probe = self.breaker.is_closed, who in self.probes
        self.put(self.breaker.succeed(who))
        assert self.breaker.is_closed == (was_closed or was_probe)
        self.probes.discard(who)

    @precondition(lambda self: self.probes)
    @rule(who=st.sampled_from(WHO))
    def abandon(self, who: str) -> None:
        self.put(self.breaker.abandon(who))
        self.probes.discard(who)

    @invariant()
    def half_open_means_one_probe(self) -> None:
        is_half_open = self.breaker.state is BreakerState.HALF_OPEN
        assert is_half_open == (len(self.probes) == 1)
        assert (self.breaker.probe is not None) == is_half_open

    @invariant()
    def closed_holds_fewer_failures_than_would_open_it(self) -> None:
        if self.breaker.is_closed:
            assert len(self.breaker.failed_at) < POLICY.failures


AnyHistory.TestCase.settings = settings(max_examples=examples(60), deadline=None)
TestAnyHistory = AnyHistory.TestCase

"""A node's clock, as far as messages that take their time can tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corral.core.nodes.clock_skew import KEPT, ClockSkew


def heard(*leads_s: float) -> ClockSkew:
    skew = ClockSkew()
    for number, lead_s in enumerate(leads_s):
        skew = skew.heard(1000.0 * number + lead_s, 1000.0 * number)
    return skew


@given(
    lead_s=st.floats(-1e6, 1e6),
    delays_s=st.lists(st.floats(0, 30), min_size=1, max_size=KEPT),
)
def test_the_error_is_no_more_than_the_fastest_message_took(
    lead_s: float, delays_s: list[float]
) -> None:
    found = heard(*(lead_s - delay_s for delay_s in delays_s)).seconds
    assert found is not None
    assert abs(lead_s - found) <= min(delays_s) + 1e-6


def test_a_clock_that_was_set_is_believed_after_a_few_messages() -> None:
    assert heard(*[30.0] * KEPT, *[0.0] * KEPT).seconds == 0.0


def test_small_differences_are_not_corrected() -> None:
    assert heard(0.9).correction_s == 0.0
    assert heard(-90.0).correction_s == -90.0
    assert ClockSkew().correction_s == 0.0


def test_one_late_message_is_no_alarm_and_five_seconds_are() -> None:
    assert not heard(-20.0).is_alarming(was=False)
    assert not heard(-20.0, 0.0, -0.1).is_alarming(was=False)
    assert not heard(5.0, 5.0, 5.0).is_alarming(was=False)
    assert heard(5.1, 5.0, 5.0).is_alarming(was=False)


def test_an_alarm_ends_only_when_it_is_clearly_over() -> None:
    assert heard(4.5, 4.5, 4.5).is_alarming(was=True)
    assert not heard(4.0, 3.9, 3.5).is_alarming(was=True)

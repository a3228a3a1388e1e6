"""Which errors put a card in quarantine, and how it comes out of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corral.agent.watch.gpu_health import FILE, GpuBreakers, blames_card
from corral.core.nodes.breaker import BreakerPolicy
from corral.core.nodes.gpu import Gpu, GpuHealth

POLICY = BreakerPolicy(3, 600.0, 300.0, 86_400.0)
CARD = Gpu(id="GPU-1", vendor="nvidia", name="H200")


class Ticking:
    """A ward whose time is told."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_000_000.0
        self.folder = folder
        self.ward = self.again()

    def again(self) -> GpuBreakers:
        self.ward = GpuBreakers(POLICY, self.folder, lambda: self.now)
        return self.ward

    def see(self, after_s: float = 5.0, error: str | None = None, **errors: int) -> Gpu:
        self.now += after_s
        (seen,) = self.ward.review([replace(CARD, errors=errors, error=error)])
        return seen


@pytest.fixture
def ticking(tmp_path: Path) -> Ticking:
    return Ticking(tmp_path)


def is_held(card: Gpu) -> bool:
    return card.health is GpuHealth.QUARANTINED


def test_what_was_counted_before_the_first_reading_is_no_news(ticking: Ticking) -> None:
    assert not is_held(ticking.see(ecc_uncorrected=99))
    assert not is_held(ticking.see(ecc_uncorrected=99))


def test_so_many_errors_within_the_window_put_it_in_quarantine(
    ticking: Ticking,
) -> None:
    ticking.see()
    assert not is_held(ticking.see(xid_79=1))
    assert not is_held(ticking.see(xid_79=2))
    held = ticking.see(xid_79=3)
    assert is_held(held)
    assert held.quarantine is not None
    assert held.quarantine.reason == "Xid 79, 3 in all"
    took = held.quarantine.until - held.quarantine.since
    assert took.total_seconds() == 300.0


def test_errors_far_apart_do_not_add_up(ticking: Ticking) -> None:
    ticking.see()
    for count in range(1, 6):
        assert not is_held(ticking.see(400.0, xid_79=count))


def test_a_counter_that_starts_over_is_no_news(ticking: Ticking) -> None:
    ticking.see(ecc_uncorrected=2)
    ticking.see()
    assert not is_held(ticking.see(ecc_uncorrected=9))
    ticking.see(ecc_uncorrected=1)
    assert is_held(ticking.see(ecc_uncorrected=4))


def test_it_comes_back_on_trial_and_one_error_doubles_the_time(
    ticking: Ticking,
) -> None:
    ticking.see()
    assert is_held(ticking.see(xid_79=3))
    assert is_held(ticking.see(290.0, xid_79=3))
    assert not is_held(ticking.see(20.0, xid_79=3))
    again = ticking.see(xid_79=4)
    assert again.quarantine is not None
    took = again.quarantine.until - again.quarantine.since
    assert took.total_seconds() == 600.0
    assert not is_held(ticking.see(605.0, xid_79=4))
    ticking.see(601.0, xid_79=4)
    assert not is_held(ticking.see(xid_79=5)), "the trial is over"


def test_a_card_that_still_fails_is_not_even_tried(ticking: Ticking) -> None:
    ticking.see()
    assert is_held(ticking.see(xid_79=3))
    assert is_held(ticking.see(xid_79=4))
    assert is_held(ticking.see(300.0, xid_79=4))
    assert is_held(ticking.see(590.0, error="no answer"))


def test_a_quarantine_outlives_the_agent(ticking: Ticking) -> None:
    ticking.see()
    held = ticking.see(xid_79=3)
    ticking.again()
    assert ticking.see().quarantine == held.quarantine
    ticking.see(400.0)
    ticking.again()
    assert is_held(ticking.see(xid_79=0)) is False
    assert is_held(ticking.see(xid_79=1)), "it was still on trial"


def test_a_file_that_is_no_file_of_ours_is_left_out(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{", encoding="utf-8")
    assert not is_held(Ticking(tmp_path).see())


def test_a_release_ends_the_quarantine_it_names_and_no_other(
    ticking: Ticking,
) -> None:
    ticking.see()
    first = ticking.see(xid_79=3)
    assert first.quarantine is not None
    assert ticking.ward.release("GPU-1", first.quarantine.since)
    assert not is_held(ticking.see(xid_79=3))
    second = ticking.see(xid_79=6)
    assert is_held(second)
    assert not ticking.ward.release("GPU-1", first.quarantine.since)
    assert not ticking.ward.release("GPU-2", first.quarantine.since)
    assert is_held(ticking.see(xid_79=6))


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", True),
        ("RuntimeError: CUDA error: unknown error", True),
        ("Unable to determine the device handle: GPU is lost", True),
        ("CUDA error: out of memory", False),
        ("CUDA error: device-side assert triggered", False),
        ("ended with exit code 1", False),
    ],
)
def test_only_words_that_blame_the_card_count(text: str, blamed: bool) -> None:
    assert blames_card(text) is blamed

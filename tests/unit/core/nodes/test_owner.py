"""What counts as the owner's use of a node, and when it is over."""

from __future__ import annotations

import pytest

from corral.core.nodes.gpu import Gpu, GpuProcess
from corral.core.nodes.owner import Owner, OwnerPolicy, use_seen

POLICY = OwnerPolicy(
    gpu_percent=20.0, gpu_memory_mb=1024.0, idle_s=600.0, resume_s=60.0
)
GAME = GpuProcess(7, "game", 4000.0)
DESK = GpuProcess(8, "desktop", 300.0)
OURS = GpuProcess(9, "python", 8000.0, is_ours=True)


def card(
    *processes: GpuProcess, used: float | None = None, is_offered: bool = True
) -> Gpu:
    return Gpu(
        "GPU-1",
        "nvidia",
        "a card",
        utilization_percent=used,
        processes=processes,
        is_offered=is_offered,
    )


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (card(), None),
        (card(OURS, used=100.0), None),
        (card(DESK, used=3.0), None),
        (card(DESK, used=None), None),
        (card(GAME), "game holds 4000 MB of a card"),
        (card(GAME, OURS), "game holds 4000 MB of a card"),
        (card(DESK, used=55.0), "desktop uses 55 % of a card"),
        # Whose use that is, nobody can tell.
        (card(DESK, OURS, used=55.0), None),
        (card(GAME, is_offered=False), None),
        (card(GpuProcess(3), used=90.0), "process 3 uses 90 % of a card"),
    ],
)
def test_other_programs_count_by_memory_and_use_of_offered_cards(
    gpu: Gpu, words: str | None
) -> None:
    assert use_seen(POLICY, [card(), gpu], None) == words


@pytest.mark.parametrize(
    ("idle_s", "is_seen"), [(None, False), (0.0, True), (599.0, True), (600.0, False)]
)
def test_input_counts_for_a_while_and_what_is_unknown_never(
    idle_s: float | None, is_seen: bool
) -> None:
    assert (use_seen(POLICY, [], idle_s) is not None) == is_seen


def test_use_is_over_only_after_it_was_quiet_for_long_enough() -> None:
    owner = Owner().follow("a game", 0.0, 60.0)
    assert (owner.is_active, owner.reason) == (True, "a game")
    owner = owner.follow(None, 10.0, 60.0).follow(None, 69.0, 60.0)
    assert owner.is_active
    owner = owner.follow("again", 69.5, 60.0).follow(None, 70.0, 60.0)
    owner = owner.follow(None, 129.0, 60.0)
    assert (owner.is_active, owner.reason) == (True, "again")
    assert owner.follow(None, 130.0, 60.0) == Owner()
    assert Owner().follow(None, 5.0, 60.0) == Owner()


def test_without_a_pause_it_is_over_at_once() -> None:
    assert not Owner().follow("x", 0.0, 0.0).follow(None, 1.0, 0.0).is_active

"""Placement by need: never too much, always the same, and little left unusable."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from corral.scheduler.place.capacity import (
    WHOLE,
    CapacityOffer,
    Card,
    Lack,
    Need,
    NodeCapacity,
    Shortage,
)
from corral.scheduler.place.packing import Fit, Packing
from tests.property_examples import examples

A, B = Card("a", "nvidia", 16_000), Card("b", "amd", 24_000)
PLAIN = Card()

offers = st.builds(
    CapacityOffer,
    cpu_milli=st.sampled_from([0, 4000, 16_000]),
    memory_mb=st.sampled_from([8_000, 64_000]),
    cards=st.lists(st.sampled_from([A, A, B, PLAIN]), max_size=4).map(tuple),
)
any_need = st.builds(
    Need,
    cpu_milli=st.sampled_from([0, 1000, 3000]),
    memory_mb=st.sampled_from([0, 2000, 30_000]),
    share=st.sampled_from([0, 160, 470, 810, WHOLE]),
    gpus=st.sampled_from([1, 1, 1, 2, 3]),
    gpu_mb=st.sampled_from([0, 0, 5000, 20_000]),
    kinds=st.sampled_from([frozenset(), frozenset("b"), frozenset("ab")]),
    vendor=st.sampled_from(["", "", "nvidia"]),
) | st.builds(Need, cpu_milli=st.sampled_from([500, 4000]))


def could_take(room: NodeCapacity, need: Need) -> bool:
    """Whether it fits, card by card, in other words than the code's."""
    left, offer = room.left, room.offer
    if need.cpu_milli > left.cpu_milli or need.memory_mb > left.memory_mb:
        return False
    good = 0
    for card, share, mb in zip(offer.cards, left.shares, left.card_mb, strict=True):
        is_right = need.vendor in ("", card.vendor)
        is_right &= card.kind in (need.kinds or {card.kind})
        good += is_right and share >= need.share and mb >= need.gpu_mb
    return good >= need.gpus


class AnyHistory(RuleBasedStateMachine):
    """Two packings are told the same; one of them is asked more often."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Packing(), Packing()
        self.rooms: list[tuple[NodeCapacity, NodeCapacity]] = []
        self.gone: list[tuple[NodeCapacity, NodeCapacity]] = []
        self.placed: list[
            tuple[tuple[NodeCapacity, NodeCapacity], tuple[int, ...], Need]
        ] = []
        self.count = 0

    @rule(offer=offers)
    def add(self, offer: CapacityOffer) -> None:
        self.count += 1
        pair = (
            NodeCapacity.of(f"n{self.count}", offer),
            NodeCapacity.of(f"n{self.count}", offer),
        )
        self.one.add(pair[0])
        self.two.add(pair[1])
        self.rooms.append(pair)

    @rule(need=any_need, data=st.data(), is_new=st.booleans())
    def place(self, need: Need, data: st.DataObject, is_new: bool) -> None:
        if is_new:
            self.one.expect(need)
            self.two.expect(need)
        fit, same = self.one.choose(need), self.two.choose(need)
        if fit is None or same is None:
            assert fit is same
            assert not any(could_take(room, need) for room, _ in self.rooms)
            return
        assert (fit.node.name, fit.cards) == (same.node.name, same.cards)
        assert could_take(fit.node, need)
        assert len(set(fit.cards)) == need.gpus
        pair = next(pair for pair in self.rooms if pair[0] is fit.node)
        self.one.place(fit.node, fit.cards, need)
        self.two.place(pair[1], fit.cards, need)
        assert min(fit.node.left.cpu_milli, fit.node.left.memory_mb) >= 0
        assert all(fit.node.left.shares[card] >= 0 for card in fit.cards)
        assert all(fit.node.left.card_mb[card] >= 0 for card in fit.cards)
        self.placed.append((pair, fit.cards, need))

    @rule(need=any_need, names=st.sets(st.integers(1, 6)))
    def place_where_allowed(self, need: Need, names: set[int]) -> None:
        allowed = {f"n{name}" for name in names}
        fit = self.one.choose(need, lambda room: room.name in allowed)
        could = {room.name for room, _ in self.rooms if could_take(room, need)}
        assert (fit.node.name in could & allowed) if fit else not could & allowed

    @rule(need=any_need)
    def ask_for_all(self, need: Need) -> None:
        found = self.two.best(need, 100)
        could = [room for _, room in self.rooms if could_take(room, need)]
        assert sorted(f.node.name for f in found) == sorted(r.name for r in could)
        assert [f.cost for f in found] == sorted(f.cost for f in found)
        assert found[:1] == [fit for fit in [self.two.choose(need)] if fit]

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if not self.placed:
            return
        at = data.draw(st.integers(0, len(self.placed) - 1))
        pair, cards, need = self.placed.pop(at)
        self.one.release(pair[0], cards, need)
        self.two.release(pair[1], cards, need)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.rooms:
            at = data.draw(st.integers(0, len(self.rooms) - 1))
            pair = self.rooms.pop(at)
            self.one.remove(pair[0])
            self.two.remove(pair[1])
            self.gone.append(pair)

    @rule()
    def come_back(self) -> None:
        if self.gone:
            pair = self.gone.pop()
            self.one.add(pair[0])
            self.two.add(pair[1])
            self.rooms.append(pair)

    @rule(data=st.data(), cpu=st.sampled_from([2000, 16_000]))
    def change(self, data: st.DataObject, cpu: int) -> None:
        if self.rooms:
            at = data.draw(st.integers(0, len(self.rooms) - 1))
            pair, old = self.rooms[at], self.rooms[at][0].offer
            used = st.sampled_from([0, 10_000])
            foreign = tuple(data.draw(used) for _ in (*old.cards, A))
            offer = CapacityOffer(cpu, old.memory_mb, (*old.cards, A), foreign)
            if len(old.cards) == 4:
                offer = replace(offer, cards=old.cards, foreign_mb=foreign[:4])
            self.one.change(pair[0], offer)
            self.two.change(pair[1], offer)

    @invariant()
    def what_is_left_is_what_was_not_placed(self) -> None:
        for pair in (*self.rooms, *self.gone):
            left = pair[0].offer.left
            for where, cards, need in self.placed:
                if where is pair:
                    left = left.after(need, cards)
            assert pair[0].left == pair[1].left == left


AnyHistory.TestCase.settings = settings(
    max_examples=examples(80), stateful_step_count=40, deadline=None
)
test_any_history = AnyHistory.TestCase


def a_packing(
    *offers: CapacityOffer, packing: Packing | None = None
) -> tuple[Packing, list[NodeCapacity]]:
    packing = packing or Packing()
    rooms = [NodeCapacity.of(f"n{at}", offer) for at, offer in enumerate(offers)]
    for room in rooms:
        packing.add(room)
    return packing, rooms


def expect(packing: Packing, *needs: Need) -> None:
    for _ in range(32):
        for need in needs:
            packing.expect(need)


def chosen(packing: Packing, need: Need) -> Fit:
    fit = packing.choose(need)
    assert fit is not None
    return fit


def test_a_share_goes_beside_the_one_it_fits_with() -> None:
    packing, (room,) = a_packing(CapacityOffer(64_000, 64_000, (PLAIN,) * 3))
    small, large = Need(share=320, gpus=1), Need(share=650, gpus=1)
    expect(packing, small, large)
    packing.place(room, (1,), large)
    assert chosen(packing, small).cards == (1,)


def test_whole_nodes_are_kept_for_tasks_with_several_cards() -> None:
    four = CapacityOffer(64_000, 64_000, (PLAIN,) * 4)
    packing, rooms = a_packing(four, four)
    one, many = Need(share=WHOLE, gpus=1), Need(share=WHOLE, gpus=4)
    expect(packing, one, many)
    packing.place(rooms[1], (0,), one)
    assert chosen(packing, one).node is rooms[1]


def test_what_takes_much_cpu_goes_where_there_is_much_for_each_card() -> None:
    poor, rich = (
        CapacityOffer(16_000, 64_000, (PLAIN,) * 2),
        CapacityOffer(64_000, 64_000, (PLAIN,)),
    )
    packing, rooms = a_packing(poor, rich)
    light = Need(cpu_milli=2000, share=WHOLE, gpus=1)
    heavy = Need(cpu_milli=14_000, share=WHOLE, gpus=1)
    expect(packing, light, heavy)
    assert chosen(packing, heavy).node is rooms[1]
    assert chosen(packing, light).node is rooms[0]


def test_a_scarce_kind_is_left_to_those_that_can_use_no_other() -> None:
    packing, rooms = a_packing(
        CapacityOffer(16_000, 64_000, (B,)), *[CapacityOffer(16_000, 64_000, (A,))] * 4
    )
    only_b = Need(share=WHOLE, gpus=1, kinds=frozenset("b"))
    expect(packing, only_b, *[Need(share=WHOLE, gpus=1)] * 3)
    assert chosen(packing, Need(share=WHOLE, gpus=1)).node is not rooms[0]


def test_a_small_card_is_taken_where_it_will_do() -> None:
    packing, rooms = a_packing(
        *[CapacityOffer(16_000, 64_000, (B,))] * 2,
        *[CapacityOffer(16_000, 64_000, (A,))] * 2,
    )
    expect(packing, Need(gpus=1, gpu_mb=20_000), Need(gpus=1, gpu_mb=9_000))
    assert chosen(packing, Need(gpus=1, gpu_mb=9_000)).node in rooms[2:]


def test_placing_what_does_not_fit_is_refused() -> None:
    packing, (room,) = a_packing(CapacityOffer(1000, 1000, (A, B)))
    for need, cards in (
        (Need(cpu_milli=1001), ()),
        (Need(share=500, gpus=1), ()),
        (Need(share=500, gpus=2), (0, 0)),
        (Need(gpus=1, gpu_mb=16_001), (0,)),
        (Need(gpus=1, vendor="nvidia"), (1,)),
    ):
        with pytest.raises(ValueError, match="does not fit on n0"):
            packing.place(room, cards, need)
    assert room.left == room.offer.left


def test_nothing_is_placed_on_a_node_that_is_gone() -> None:
    packing, (room,) = a_packing(CapacityOffer(1000, 1000))
    packing.remove(room)
    assert packing.choose(Need(cpu_milli=1)) is None
    with pytest.raises(ValueError, match="does not fit on n0"):
        packing.place(room, (), Need(cpu_milli=1))


@pytest.mark.parametrize(
    ("need", "short"),
    [
        (Need(cpu_milli=5000), Shortage(Lack.CPU, 1000)),
        (Need(memory_mb=9000), Shortage(Lack.MEMORY, 1000)),
        (Need(gpus=4, share=WHOLE), Shortage(Lack.GPUS, 1)),
        (Need(gpus=3, vendor="nvidia"), Shortage(Lack.KIND, 1)),
        (Need(gpus=3, share=300), Shortage(Lack.SHARE, 100, 1)),
        (Need(gpus=2, gpu_mb=16_150, share=100), Shortage(Lack.GPU_MEMORY, 2150, 1)),
        (Need(gpus=2, gpu_mb=14_000), None),
    ],
)
def test_what_is_missing_first_is_told_with_how_much(
    need: Need, short: Shortage | None
) -> None:
    packing, (room,) = a_packing(CapacityOffer(4000, 8000, (A, A, B), (0, 2000, 0)))
    packing.place(room, (0,), Need(share=800, gpus=1, gpu_mb=10_000))
    assert list(packing.shorts(need)) == [(room, short)]
    assert (packing.choose(need) is None) == (short is not None)


def test_memory_others_take_is_not_given_out_and_comes_back() -> None:
    packing, (room,) = a_packing(CapacityOffer(4000, 8000, (A,)))
    need = Need(gpus=1, gpu_mb=12_000)
    packing.change(room, replace(room.offer, foreign_mb=(6000,)))
    assert packing.choose(need) is None
    assert room.short(need) == Shortage(Lack.GPU_MEMORY, 2000, 1)
    assert not room.emptied().fits(need)
    assert room.emptied(of_others=True).fits(need)
    packing.change(room, replace(room.offer, foreign_mb=()))
    assert chosen(packing, need).cards == (0,)


def test_a_card_taken_out_of_use_takes_no_more_and_keeps_its_place() -> None:
    packing, (room,) = a_packing(CapacityOffer(4000, 8000, (A, A)))
    half = Need(share=500, gpus=1)
    packing.place(room, (0,), half)
    packing.change(room, replace(room.offer, cards=(replace(A, share=0), A)))
    assert chosen(packing, half).cards == (1,)
    assert room.left.shares == (-500, WHOLE)
    with pytest.raises(ValueError, match="lose 1 of its cards"):
        packing.change(room, replace(room.offer, cards=(A,)))


@pytest.mark.parametrize(
    ("share", "gpus", "gpu_mb"), [(1, 0, 0), (0, 0, 1), (1001, 1, 0), (0, -1, 0)]
)
def test_a_need_no_node_could_meet_is_refused(
    share: int, gpus: int, gpu_mb: int
) -> None:
    with pytest.raises(ValueError, match="no "):
        Need(share=share, gpus=gpus, gpu_mb=gpu_mb)


def fill(
    seed: int, is_ours: bool = True, packing: Packing | None = None
) -> tuple[float, list[str]]:
    """GPU given out, in percent, when tasks for 130 % of it came; and where."""
    chance = random.Random(seed)
    packing, _ = a_packing(
        *[CapacityOffer(48_000, 200_000, (PLAIN,) * 4)] * 20,
        *[CapacityOffer(16_000, 100_000, (PLAIN,) * 2)] * 10,
        *[CapacityOffer(96_000, 400_000, (PLAIN,) * 2)] * 10,
        packing=packing,
    )
    total, came, given, where = 120 * WHOLE, 0, 0, []
    while came < 1.3 * total:
        share = chance.choice([WHOLE, WHOLE, 810, 650, 470, 320, 230, 160])
        cpu = chance.choice([3000, 8000, 11_000, 18_000])
        need = Need(cpu, 8000, share, 4 if chance.random() < 0.02 else 1)
        came += need.milli
        packing.expect(need)
        fit = packing.choose(need) if is_ours else tightest(packing, need)
        where.append(fit.node.name if fit else "")
        if fit:
            packing.place(fit.node, fit.cards, need)
            given += need.milli
    return 100 * given / total, where


def tightest(packing: Packing, need: Need) -> Fit | None:
    fits = packing.best(need, 100)
    return min(
        fits,
        key=lambda fit: fit.node.left.cpu_milli + 16 * sum(fit.node.left.shares),
        default=None,
    )


def test_more_gpu_is_given_out_than_by_best_fit() -> None:
    ours = [fill(seed)[0] for seed in range(4)]
    theirs = [fill(seed, is_ours=False)[0] for seed in range(4)]
    assert sum(ours) > sum(theirs) + 4 * 0.5


def test_forgetting_kinds_of_need_changes_no_choice() -> None:
    forgetful = Packing(least_rows=2, most_candidates=0)
    assert fill(1, packing=forgetful) == fill(1)

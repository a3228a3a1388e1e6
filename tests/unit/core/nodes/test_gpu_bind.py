"""Who gets which card: no card twice, the same answer each time, and why not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.nodes.gpu import Gpu, GpuHealth, Quarantine, offer
from corral.core.nodes.gpu_choice import (
    GpuClaim,
    GpuRequest,
    bind,
    read_wish,
    visible,
)
from corral.errors import InvalidField


def card(index: int, offered_mb: float | None = 1000.0, **more: object) -> Gpu:
    base = Gpu(
        id=f"GPU-{index:08d}",
        vendor="nvidia",
        name="H200",
        index=index,
        is_offered=True,
        memory_offered_mb=offered_mb,
    )
    return replace(base, **more)  # type: ignore[arg-type]


def want(name: str, gpus: str, *held: str) -> GpuClaim:
    return GpuClaim(name, name, read_wish(gpus), held)


def given_to(wants: list[GpuClaim], cards: list[Gpu]) -> dict[str, list[int]]:
    bound = bind(wants, cards)
    return {name: [card.index for card in b.cards] for name, b in bound.items()}


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("", GpuRequest()),
        ("0", GpuRequest()),
        (" 2 ", GpuRequest(2)),
        ("gpu:0", GpuRequest(1, ("0",))),
        ("gpu:0, GPU:12", GpuRequest(2, ("0", "12"))),
        ("GPU-6d1b2f60,0000:0d:00.0", GpuRequest(2, ("GPU-6d1b2f60", "0000:0d:00.0"))),
    ],
)
def test_a_number_is_how_many_and_all_else_names_cards(
    text: str, wish: GpuRequest
) -> None:
    assert read_wish(text) == wish


@pytest.mark.parametrize(
    "text", ["-1", "257", "0,1", "gpu:", "gpu:x", "1,", "all", "gpu:0,gpu:0", "GPU\n1"]
)
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        read_wish(text)


@pytest.mark.parametrize(
    ("wants", "cards", "bound"),
    [
        ([want("a", "1")], [card(0, 10), card(1, 20)], {"a": [1]}),
        ([want("a", "1"), want("b", "1")], [card(0), card(1)], {"a": [0], "b": [1]}),
        (
            [want("a", "1"), want("b", "gpu:0")],
            [card(0), card(1)],
            {"a": [1], "b": [0]},
        ),
        ([want("a", "1", "GPU-00000001")], [card(0, 99), card(1, 0)], {"a": [1]}),
        (
            [want("a", "1"), want("b", "1", "GPU-00000000")],
            [card(0), card(1)],
            {"a": [1], "b": [0]},
        ),
        ([want("a", "2")], [card(0), card(1, vendor="amd")], {"a": []}),
        (
            [want("a", "2")],
            [card(0), card(1, vendor="amd"), card(2, vendor="amd")],
            {"a": [1, 2]},
        ),
        ([want("a", "1")], [card(0, None)], {"a": [0]}),
        ([want("a", "1")], [card(0, 0.0)], {"a": []}),
        ([want("a", "1")], [card(0, is_offered=False)], {"a": []}),
        ([want("a", "gpu:0", "GPU-00000001")], [card(0), card(1)], {"a": [0]}),
    ],
)
def test_cards_go_to_who_fits(
    wants: list[GpuClaim], cards: list[Gpu], bound: dict[str, list[int]]
) -> None:
    assert given_to(wants, cards) == bound


def test_a_card_that_a_task_has_is_not_given_before_it_comes_back() -> None:
    cards = [card(0)]
    refusal = bind([want("a", "1")], cards, {cards[0].id})["a"].refusal
    assert refusal.endswith("is with a task that runs")
    assert bind([want("a", "1")], cards)["a"].cards == tuple(cards)


def test_a_refusal_says_why_for_each_card() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    sick = card(1, 0.0, is_offered=False, quarantine=Quarantine("Xid 79", at, at))
    cards = [card(0), sick, card(2, 0.0), card(3, is_offered=False)]
    refusal = bind([want("a", "1"), want("b", "1")], cards)["b"].refusal
    assert refusal == (
        "no GPU is free: gpu:0 (H200) is held by worker a (a); gpu:1 (H200) is "
        "quarantined: Xid 79; gpu:2 (H200) is used by others; gpu:3 (H200) is not "
        "offered"
    )
    assert (
        bind([want("a", "gpu:9")], cards)["a"].refusal == "no GPU of this node is gpu:9"
    )
    assert bind([want("a", "1")], [])["a"].refusal == "this node has no GPU"


_CARDS = st.lists(
    st.tuples(
        st.sampled_from(["nvidia", "amd", "simulated"]),
        st.booleans(),
        st.sampled_from([None, 0.0, 10.0, 20.0]),
    ),
    max_size=6,
)
_WANTS = st.lists(
    st.tuples(
        st.sampled_from(["1", "2", "3", "gpu:0", "gpu:1,gpu:2"]),
        st.lists(st.integers(0, 5), max_size=2, unique=True),
    ),
    max_size=5,
)


@given(_CARDS, _WANTS)
def test_no_card_is_given_twice_and_the_answer_is_always_the_same(
    told: list[tuple[str, bool, float | None]], asked: list[tuple[str, list[int]]]
) -> None:
    cards = [
        card(i, mb, vendor=vendor, is_offered=is_offered)
        for i, (vendor, is_offered, mb) in enumerate(told)
    ]
    wants = [
        want(f"w{n}", text, *(f"GPU-{i:08d}" for i in held))
        for n, (text, held) in enumerate(asked)
    ]
    bound = bind(wants, cards)
    ids = [gpu.id for binding in bound.values() for gpu in binding.cards]
    assert len(ids) == len(set(ids))
    assert bind(wants, cards) == bound
    for one in wants:
        binding = bound[one.worker_id]
        assert len(binding.cards) in (0, one.wish.count)
        assert bool(binding.refusal) != bool(binding.cards)
        assert all(gpu.is_offered for gpu in binding.cards)


def test_each_vendor_is_told_in_its_own_words() -> None:
    mig = card(0, id="MIG-1d2e3f40-0000-0000-0000-000000000001")
    assert visible([mig])["CUDA_VISIBLE_DEVICES"] == mig.id
    assert visible([mig])["ROCR_VISIBLE_DEVICES"] == "-1"
    amd = [
        card(0, vendor="amd", id="GPU-9246000000000001"),
        card(1, vendor="amd", id="0000:83:00.0", vendor_index=3),
    ]
    shown = visible(amd)
    assert shown["ROCR_VISIBLE_DEVICES"] == "GPU-9246000000000001,3"
    assert shown["HIP_VISIBLE_DEVICES"] == "0,1"
    assert shown["CUDA_VISIBLE_DEVICES"] == "-1"
    intel = visible([card(0, vendor="intel", id="0000:03:00.0", vendor_index=1)])
    assert (intel["ZE_AFFINITY_MASK"], intel["CORRAL_GPUS"]) == ("1", "0000:03:00.0")
    assert intel["ONEAPI_DEVICE_SELECTOR"] == "level_zero:gpu"


@pytest.mark.spec("B14")
@pytest.mark.parametrize(
    ("told", "offered_mb"),
    [
        ({"memory_used_mb": 100.0}, 800.0),
        ({"memory_used_mb": 950.0}, 0.0),
        ({"memory_used_mb": None}, None),
        ({"memory_used_mb": 100.0, "error": "gone"}, 0.0),
        ({"memory_used_mb": 100.0, "health": GpuHealth.QUARANTINED}, 0.0),
        ({"memory_used_mb": None, "is_integrated": True}, 0.0),
    ],
)
def test_memory_used_by_anybody_is_never_offered(
    told: dict[str, Any], offered_mb: float | None
) -> None:
    (shown,) = offer([card(0, memory_total_mb=1000.0, **told)], share=0.9)
    assert shown.memory_offered_mb == offered_mb

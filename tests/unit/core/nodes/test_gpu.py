"""Cards as values: numbering, what is offered, what changed between two readings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.nodes.gpu import (
    Gpu,
    GpuEvent,
    arrange,
    compare,
    is_news,
    read_simulated,
)
from corral.errors import InvalidField

CARD = Gpu(
    "GPU-aaaaaaaa-1",
    "nvidia",
    "H200",
    memory_total_mb=1000.0,
    memory_used_mb=0.0,
    driver="580.1",
)


def test_cards_of_all_vendors_have_numbers_of_their_own() -> None:
    found = [
        Gpu("0000:0d:00.0", "amd", "inside", is_integrated=True),
        Gpu("GPU-2", "amd", "RX", vendor_index=0),
        Gpu("GPU-b", "nvidia", "B", vendor_index=1),
        Gpu("GPU-a", "nvidia", "A", vendor_index=0),
    ]
    arranged = arrange(found)
    assert [(g.index, g.id) for g in arranged] == [
        (0, "GPU-a"),
        (1, "GPU-b"),
        (2, "GPU-2"),
        (3, "0000:0d:00.0"),
    ]
    assert [g.is_offered for g in arranged] == [True, True, True, False]


def test_boards_with_one_serial_number_are_told_apart_by_their_address() -> None:
    twins = [Gpu("GPU-1", "amd", "x", pci_address=f"0000:0{n}:00.0") for n in (3, 8)]
    assert [g.id for g in arrange(twins)] == ["0000:03:00.0", "0000:08:00.0"]


@given(st.lists(st.sampled_from(["a", "b", "a/1", "b/1"]), max_size=8))
def test_ids_are_always_distinct(ids: list[str]) -> None:
    arranged = arrange(Gpu(name, "amd", "x") for name in ids)
    assert len({g.id for g in arranged}) == len(ids)


@pytest.mark.parametrize(
    ("devices", "offered"),
    [
        (None, [True, True]),
        ([], [False, False]),
        (["1"], [False, True]),
        (["gpu-aaaaaaaa-1"], [True, False]),
        (["GPU-bbbb"], [False, True]),
        (["GPU-b"], [False, False]),
        (["0000:19:00.0"], [True, False]),
        (["7"], [False, False]),
    ],
)
def test_cards_are_chosen_by_number_id_address_or_start_of_the_id(
    devices: list[str] | None, offered: list[bool]
) -> None:
    two = [
        replace(CARD, pci_address="0000:19:00.0"),
        replace(CARD, id="GPU-bbbbbbbb-2", vendor_index=1),
    ]
    assert [g.is_offered for g in arrange(two, devices)] == offered


def test_a_card_that_cannot_be_read_is_not_offered() -> None:
    assert not arrange([replace(CARD, error="lost")])[0].is_offered


def test_hot_removal_and_return_are_events() -> None:
    (gone,) = compare([CARD], [])
    assert (gone.event, gone.gpu) == (GpuEvent.REMOVED, CARD)
    assert [c.event for c in compare([], [CARD])] == [GpuEvent.ADDED]
    assert compare([CARD], [replace(CARD, utilization_percent=99.0)]) == []


def test_a_new_driver_and_a_failing_card_are_events() -> None:
    (change,) = compare([CARD], [replace(CARD, driver="590.2")])
    assert change.event is GpuEvent.DRIVER_CHANGED
    assert change.detail == "580.1 is now 590.2"
    failed = replace(CARD, error="hangs")
    assert [c.event for c in compare([CARD], [failed])] == [GpuEvent.FAILED]
    assert [c.event for c in compare([failed], [CARD])] == [GpuEvent.RECOVERED]
    assert compare([failed], [failed]) == []


def test_much_memory_is_news_and_little_is_not() -> None:
    assert not is_news([CARD], [replace(CARD, memory_used_mb=255.0)])
    assert is_news([CARD], [replace(CARD, memory_used_mb=256.0)])
    assert is_news([CARD], [replace(CARD, memory_used_mb=None)])
    assert is_news([CARD], [replace(CARD, is_offered=True)])


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("2x24GB,1x8GB", [24576.0, 24576.0, 8192.0]),
        ("8gb", [8192.0]),
        (" 1x512MB , 80GB", [512.0, 81920.0]),
        ("", []),
    ],
)
def test_simulated_gpus_are_read(text: str, sizes: list[float]) -> None:
    assert read_simulated(text) == sizes


@pytest.mark.parametrize("text", ["2x", "x24GB", "24", "1x0GB", "2*24GB", "nonsense"])
def test_what_is_no_list_of_simulated_gpus_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match="2x24GB"):
        read_simulated(text)

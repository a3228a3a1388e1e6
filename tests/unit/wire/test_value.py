"""What answers have in common: read with tolerance, sent whole."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from corral.core.nodes.node import Hold, HoldSource, Window
from corral.wire.nodes import HoldInfo, NodeInfo, NodeList, WindowInfo

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_what_an_older_manager_leaves_out_has_a_default() -> None:
    told = b'{"node_id": "n1", "status": "online", "of_tomorrow": 1}'
    node = msgspec.json.decode(told, type=NodeInfo)
    assert (node.scheduling, node.holds, node.labels) == ("open", [], {})


def test_every_field_is_sent_also_those_with_a_default() -> None:
    sent = msgspec.json.decode(msgspec.json.encode(HoldInfo(source="owner")))
    assert sent.keys() == set(HoldInfo.__dataclass_fields__)
    assert HoldInfo(source="owner").to_dict() == sent
    list_of = msgspec.json.decode(msgspec.json.encode(NodeList(nodes=[])))
    assert list_of.keys() == set(NodeList.__struct_fields__)


def test_a_shape_of_a_core_value_takes_a_word_that_is_none_of_ours_yet() -> None:
    told = msgspec.json.decode(b'{"source": "of_tomorrow"}', type=HoldInfo)
    assert (told.source, told.drain, told.to_dict()["by"]) == ("of_tomorrow", False, "")


def test_a_core_value_becomes_the_answer_with_its_fields() -> None:
    hold = Hold(HoldSource.OWNER, "in use", drain=True, since=NOON)
    told = HoldInfo.of(hold)
    assert told == HoldInfo(source="owner", reason="in use", drain=True, since=NOON)
    assert msgspec.json.decode(msgspec.json.encode(told), type=HoldInfo) == told


def test_others_count_instead_of_what_the_value_has() -> None:
    window = Window("patch-day", 60.0, reason="kernel")
    told = WindowInfo.of(window, duration=window.duration_s, reason="", next_at=NOON)
    assert (told.name, told.duration, told.reason) == ("patch-day", 60.0, "")
    assert told.next_at == NOON


def test_a_value_without_a_field_that_must_be_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="duration"):
        WindowInfo.of(Window("patch-day", 60.0))

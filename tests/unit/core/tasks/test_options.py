"""Which nodes a task may go to, and how its row holds that."""

from __future__ import annotations

import pytest

from corral.core.nodes.labels import (
    ANYWHERE,
    NODE_LABELS,
    TOLERATES,
    Constraint,
    constraint_of,
    labels_for,
    read_pairs,
)
from corral.core.nodes.node import Hold, HoldSource, NodeRecord, held_words
from corral.core.tasks.webhook import public
from corral.errors import InvalidField


def test_what_a_task_asks_for_travels_in_labels_that_nobody_else_sees() -> None:
    made = labels_for({"rack": "b", "disk": "ssd"}, ["spot", "tier=a", "spot"])
    labels = {"mine": "x", **made}
    assert constraint_of(labels) == Constraint(
        (("disk", "ssd"), ("rack", "b")), frozenset({"spot", "tier=a"})
    )
    assert public(labels) == {"mine": "x"}
    assert labels_for({}, []) == {}
    assert constraint_of({"mine": "x"}) is None


def test_every_label_must_be_there_and_every_taint_be_tolerated() -> None:
    task = Constraint((("disk", "ssd"), ("rack", "a")), frozenset({"spot", "tier=a"}))
    assert task.missing({"rack": "a"}) == ["disk=ssd"]
    assert task.missing({"rack": "a", "disk": "ssd", "more": "x"}) == []
    assert task.repelled({"spot", "spot=often", "tier=a"}) == []
    assert task.repelled({"tier=b", "old"}) == ["old", "tier=b"]
    assert ANYWHERE.repelled({"spot"}) == ["spot"]


@pytest.mark.parametrize(
    "wrong",
    [
        ({"": "a"}, []),
        ({"a": ""}, []),
        ({"a b": "c"}, []),
        ({"a": "b,c"}, []),
        ({"a": "x" * 64}, []),
        ({}, ["a b"]),
        ({}, ["-a"]),
        ({}, ["a=b=c"]),
        ({}, [""]),
        ({}, ["a,b"]),
        ({str(n): "x" for n in range(40)}, []),
    ],
)
def test_what_no_node_could_have_is_refused(
    wrong: tuple[dict[str, str], list[str]],
) -> None:
    with pytest.raises(InvalidField):
        labels_for(*wrong)


def test_labels_of_a_row_are_plain_text() -> None:
    made = labels_for({"b": "2", "a": "1"}, ["y", "x"])
    assert made == {NODE_LABELS: "a=1,b=2", TOLERATES: "x,y"}
    assert read_pairs("ssd,rack=a", bare="true") == {"ssd": "true", "rack": "a"}
    assert read_pairs("") == {}


def test_an_operators_word_counts_instead_of_the_agents() -> None:
    node = NodeRecord(
        "n",
        "h",
        labels={"rack": "a", "old": "1"},
        set_labels={"rack": "b", "old": "", "new": "2"},
        taints=("spot", "tier=a", "gone"),
        set_taints=("tier=b", "-gone", "more"),
    )
    assert node.all_labels == {"rack": "b", "new": "2"}
    assert node.all_taints == {"spot", "tier=b", "more"}


def test_a_hold_is_told_in_words() -> None:
    holds = [
        Hold(HoldSource.OPERATOR, "cables"),
        Hold(HoldSource.OPERATOR, "", drain=True),
        Hold(HoldSource.OWNER, "a game"),
    ]
    assert held_words(holds) == "cordoned (cables); drained; used by its owner (a game)"

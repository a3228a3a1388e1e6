"""The options of a task: which nodes it may go to, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from corral.core.nodes.labels import ANYWHERE, Constraint, check_wish, read_pairs
from corral.core.nodes.node import Hold, HoldSource, NodeRecord, held_words
from corral.core.tasks.needs import NOTHING, Need
from corral.core.tasks.options import (
    FORMER_LABELS,
    NO_OPTIONS,
    NO_TRACE,
    Gang,
    SpecOptions,
    Trace,
    check_label_names,
    checked,
)
from corral.core.tasks.script import JOB_TYPE
from corral.errors import InvalidField


def test_what_a_task_asks_of_its_node_is_one_constraint() -> None:
    told = SpecOptions(
        node_labels={"rack": "b", "disk": "ssd"}, tolerates=("spot", "tier=a", "spot")
    )
    kept = checked(told, "echo", None)
    assert kept.constraint == Constraint(
        (("disk", "ssd"), ("rack", "b")), frozenset({"spot", "tier=a"})
    )
    assert kept.tolerates == ("spot", "tier=a")
    assert NO_OPTIONS.constraint is None


def test_options_are_kept_once_each_and_equal_needs_are_one_value() -> None:
    told = SpecOptions(
        notify=("http://a/", "http://b/", "http://a/"),
        resources=Need(gpus=1, share=500),
        gang="g",
        gang_rank=1,
        gang_size=2,
        profile="python",
    )
    kept, again = (checked(told, "echo", None) for _ in range(2))
    assert kept.notify == ("http://a/", "http://b/")
    assert kept.resources is again.resources
    assert kept.member == Gang("g", 1, 2)
    # A kept result would leave nothing to profile.
    assert kept.no_cache
    assert checked(SpecOptions(resources=NOTHING), "echo", None).resources is None


def test_a_task_knows_the_request_it_came_with() -> None:
    assert Trace("r1", "p").noted(NO_OPTIONS).trace == Trace("r1", "p")
    assert NO_OPTIONS.trace is NO_TRACE


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ({"notify": ("ftp://x/",)}, "notify"),
        ({"notify": tuple(f"http://a/{n}" for n in range(6))}, "notify"),
        ({"tolerates": ("a b",)}, "tolerates"),
        ({"group": "g"}, "group_limit"),
        ({"group_limit": 1}, "group"),
        ({"group": "g", "group_limit": 0}, "group_limit"),
        ({"gang": "g", "gang_rank": 0}, "gang_size"),
        ({"gang": "g", "gang_rank": 2, "gang_size": 2}, "gang_rank"),
        ({"profile": "slow"}, "profile"),
        ({"only_on": "a b"}, "only_on"),
        ({"name": "two\nlines"}, "name"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_by_its_name(
    told: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        checked(SpecOptions(**told), "echo", None)
    assert refused.value.field == field


def test_some_options_do_not_go_together() -> None:
    member = SpecOptions(gang="g", gang_rank=0, gang_size=1)
    with pytest.raises(InvalidField, match="model_name"):
        checked(member, "echo", "llama")
    with pytest.raises(InvalidField, match="a command cannot be profiled"):
        checked(SpecOptions(profile="python"), JOB_TYPE, None)


@pytest.mark.parametrize("name", sorted(FORMER_LABELS))
def test_a_label_that_once_meant_something_is_refused_with_what_does(name: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_label_names({"mine": "x", name: "y"})
    assert FORMER_LABELS[name] in refused.value.message
    check_label_names({"mine": "x", "corral.other": "y"})


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
        check_wish(*wrong)


def test_pairs_are_read_with_and_without_values() -> None:
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

"""Canaries: answered by the runner, in the process that holds the user's class."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest

from corral.core.tasks.job_type import CANARY
from corral.wire.orders import Item
from tests.unit.worker.conftest import SAMPLES, Bench, item, value

MakeBench = Callable[..., Bench]


def canary(nonce: str = "n1") -> Item:
    made = item({"nonce": nonce})
    made.job_type = CANARY
    return made


@pytest.mark.parametrize("name", ["Doubler", "Plain", "Batcher"])
def test_any_class_answers_without_being_asked(bench: MakeBench, name: str) -> None:
    [outcome] = bench(name).run(canary())
    told = value(outcome)
    assert (told["nonce"], told["worker_class"]) == ("n1", f"{SAMPLES}:{name}")
    assert told["pid"] != os.getpid()
    assert told["canary"] is None
    assert 0 <= told["seconds"] < 1


def test_a_class_may_say_how_it_is(bench: MakeBench) -> None:
    worker = bench("Singer", song="tweet")
    assert value(worker.run(canary())[0])["canary"] == {"song": "tweet"}
    [outcome] = bench("Singer", song="").run(canary())
    assert outcome.kind == "failed"
    assert outcome.error is not None
    assert "lost its voice" in outcome.error.message


def test_a_canary_among_tasks_of_a_batch_is_kept_from_run_batch(
    bench: MakeBench,
) -> None:
    outcomes = bench("Batcher").run(item(1), canary("n2"), item(2))
    assert [o.kind for o in outcomes] == ["completed"] * 3
    assert value(outcomes[1])["nonce"] == "n2"


def test_a_canary_without_a_payload_is_answered_too(bench: MakeBench) -> None:
    bare = item(None)
    bare.job_type = CANARY
    [outcome] = bench("Doubler").run(bare)
    assert msgspec.json.decode(bytes(outcome.result))["nonce"] is None  # type: ignore[arg-type]

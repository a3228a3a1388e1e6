"""Models in a real runner process: loaded, evicted, out of memory, cancelled."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from corral.wire.orders import Item
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.reports import Notes
from tests.model_folder import Models
from tests.unit.worker.conftest import ROOT, Bench, item, value
from tests.unit.worker.inference.conftest import models

__all__ = ["models"]

# Each of the models takes 0.15 MB: there is room for one.
MEMORY_MB = 0.25


@pytest.fixture(scope="module")
def served(models: Models) -> Iterator[Bench]:
    place = models.have("writer", "other-writer", "novelist")
    params: dict[str, Any] = {"model_dir": place, "device": "cpu"}
    params |= {"memory_mb": MEMORY_MB, "max_batch_tokens": 1 << 20}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
        patch.setenv("OMP_NUM_THREADS", "1")
        bench = Bench("tests.unit.worker.inference.watched_worker:Watched", params)
        bench.warm()
        yield bench
        bench.pool.kill()
        bench.pool.join()


def write(model: str, **more: Any) -> Item:
    return item({"prompt": "the quick", "max_tokens": 4, **more}, model=model)


def held(served: Bench) -> dict[str, float | None]:
    (runner,) = served.pool.runners
    return {name: model.size_mb for name, model in runner.models.items()}


def only(served: Bench, model: str) -> None:
    others = [name for name in held(served) if name != model]
    (outcome,) = served.execute(OrderBatch([write(model)], others)).outcomes
    assert outcome.kind == "completed", outcome.error
    assert list(held(served)) == [model]


def test_an_order_evicts_what_it_says_and_the_sizes_are_told(served: Bench) -> None:
    only(served, "writer")
    (outcome,) = served.execute(
        OrderBatch([write("other-writer")], ["writer"])
    ).outcomes
    assert value(outcome)["tokens"] == 4
    (runner,) = served.pool.runners
    assert held(served) == {
        "other-writer": pytest.approx(runner.sizes["other-writer"], rel=0.05)
    }


def test_libraries_are_there_before_the_first_load_and_not_part_of_it(
    served: Bench,
) -> None:
    """A load that took the seconds of an import would be learned as the model's own."""
    (outcome,) = served.run(item("libraries"))
    assert value(outcome) == {
        "imported": False,
        "made": False,
        "started": True,
    }


def test_a_model_without_room_is_told_as_such_and_what_is_held_stays(
    served: Bench,
) -> None:
    only(served, "writer")
    (outcome,) = served.run(write("other-writer"))
    assert outcome.kind == "failed"
    assert outcome.error is not None
    assert outcome.error.kind == "out_of_memory"
    assert list(held(served)) == ["writer"]


def test_bad_input_fails_with_one_line_and_no_traceback(served: Bench) -> None:
    only(served, "writer")
    wrong, unknown = served.run(write("writer", top_p=7), write("wirter"))
    for outcome, kind in ((wrong, "bad_input"), (unknown, "unknown_model")):
        assert outcome.kind == "failed"
        assert outcome.error is not None
        assert (outcome.error.kind, outcome.error.traceback) == (kind, None)
        assert "\n" not in outcome.error.message


def test_a_cancelled_generation_stops_and_its_model_stays_warm(served: Bench) -> None:
    only(served, "novelist")
    (runner,) = served.pool.runners
    batch = OrderBatch([write("novelist", max_tokens=100_000)])

    def cancel(notes: Notes) -> None:
        for task_id, attempt, _ in notes.started:
            batch.drop((task_id, attempt))

    served.on_tell = cancel
    (outcome,) = served.execute(batch).outcomes
    served.on_tell = lambda _: None
    assert outcome.kind == "cancelled"
    assert served.pool.runners == [runner]
    assert list(held(served)) == ["novelist"]
    (after,) = served.run(write("novelist"))
    assert (value(after)["tokens"], after.load_s) == (4, 0.0)


def test_an_order_runs_as_one_batch_and_one_of_it_is_cancelled(served: Bench) -> None:
    only(served, "novelist")
    (runner,) = served.pool.runners
    endless = write("novelist", max_tokens=100_000)
    batch = OrderBatch(
        [write("novelist", max_tokens=40), endless, write("novelist", top_p=7)]
    )

    def cancel(notes: Notes) -> None:
        if notes.started:
            batch.drop(endless.key)

    served.on_tell = cancel
    short, ended, wrong = served.execute(batch).outcomes
    served.on_tell = lambda _: None
    assert value(short)["tokens"] == 40
    # Equal shares of one time: they were one batch.
    assert short.duration_s == wrong.duration_s
    assert ended.kind == "cancelled"
    assert wrong.error is not None
    assert wrong.error.kind == "bad_input"
    assert served.pool.runners == [runner]


def test_text_is_emitted_while_it_is_written(served: Bench) -> None:
    only(served, "novelist")
    served.told.clear()
    asks = [write("novelist", max_tokens=n, stream=True) for n in (30, 20)]
    notes = served.execute(OrderBatch(asks))
    for ask, outcome in zip(asks, notes.outcomes, strict=True):
        pieces = [
            msgspec.json.decode(raw)["text"]
            for each in (*served.told, notes)
            for output, _ in each.output
            if output.task_id == ask.task_id
            for raw in output.values
        ]
        assert len(pieces) > 5
        assert "".join(pieces) == value(outcome)["text"]

"""What batches take is learned by their size, and keeps the next ones in memory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corral.wire.orders import ModelInMemory
from corral.worker.inference.batching import BatchLimits, ModelSpeed, run_all
from corral.worker.inference.call import ModelCall
from corral.worker.inference.load.batch_memory import BatchMemory, Peaks
from corral.worker.inference.request import Generate
from corral.worker.protocol import Frame, ModelsFrame
from corral.worker.runner.model_slots import ModelSlots
from tests.unit.worker.inference import hungry
from tests.unit.worker.inference.conftest import Served
from tests.unit.worker.inference.test_stock import Greedy

Serve = Callable[..., Served]


def calls(count: int) -> list[ModelCall]:
    return [ModelCall(Generate(prompt="a")) for _ in range(count)]


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux forgets a peak"
)
def test_the_peak_of_a_batch_is_seen_though_it_is_over() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", hungry.__name__, "1", "4"],
        capture_output=True,
        text=True,
        check=True,
    )
    each = hungry.EACH_MB
    assert json.loads(ran.stdout) == pytest.approx({"1": each, "4": 4 * each}, rel=0.1)


def test_the_largest_batch_that_fits_is_known_before_one_does_not() -> None:
    """No batch runs out of memory here: the first two told what each call takes."""
    peaks = Peaks()

    @contextmanager
    def watch(note: Callable[[float], None]) -> Iterator[Callable[[], None]]:
        before = len(model.sizes)
        yield lambda: None
        note(100.0 + 50.0 * sum(model.sizes[before:]))

    model = Greedy(most=6)
    gauge = BatchMemory(peaks, lambda: 400.0, watch)
    trims: list[int] = []
    pace = ModelSpeed()
    for count in (1, 2, 32):
        run_all(
            model, calls(count), BatchLimits(), pace, lambda: trims.append(1), gauge
        )
    assert (trims, pace.most) == ([], None)
    assert max(model.sizes) == 6
    assert peaks.told() == {1: 150.0, 2: 200.0, 8: 400.0}


def test_what_fits_grows_with_what_was_seen_and_never_below_one_call() -> None:
    peaks = Peaks()
    assert peaks.tokens_in(1.0) == math.inf
    peaks.learn(1, 10, 100.0)
    # One size alone: as if all of it grew with the tokens, and with doubt far out.
    assert peaks.tokens_in(200.0) == 20
    assert peaks.tokens_in(800.0) == 40
    assert peaks.tokens_in(2100.0) == 60
    # More tokens for the same: each takes less.
    peaks.learn(1, 20, 100.0)
    assert peaks.tokens_in(200.0) == 40
    peaks.seen.clear()
    peaks.learn(1, 10, 100.0)
    peaks.learn(8, 80, 170.0)
    assert peaks.tokens_in(240.0) == 150
    assert peaks.tokens_in(0.0) == 1.0
    # Less than before, or hardly more, is no news.
    peaks.learn(8, 40, 80.0)
    peaks.learn(7, 70, 175.0)
    assert peaks.told() == {1: 100.0, 8: 170.0}


def test_a_model_says_its_precision_its_layers_and_what_its_batches_took(
    serve: Serve,
) -> None:
    told: list[Frame] = []
    served = serve("writer", "reader-graph")
    shelf = ModelSlots(served.worker, tell=told.append)

    def last() -> ModelInMemory:
        return [frame for frame in told if isinstance(frame, ModelsFrame)][-1].held[-1]

    shelf.need("writer")
    held = last()
    assert (held.device, held.precision) == ("cpu", "float32")
    assert held.layers == {"cpu": 2}
    half = serve("writer", dtype="bfloat16").worker
    half.load_model("writer")
    assert half.model_facts("writer")["precision"] == "bfloat16"
    count = len(told)
    served.worker._loaded.use("writer").peaks.learn(4, 40, 12.5)
    shelf.look()
    shelf.look()
    assert len(told) == count + 1
    assert last().peaks == {4: 12.5}
    shelf.need("reader-graph")
    graph = last()
    assert (graph.device, graph.precision, graph.layers) == ("cpu", None, {})


@pytest.mark.spec("C61")
def test_a_model_larger_than_memory_is_split_by_layers_and_writes_the_same(
    serve: Serve, tmp_path: Path
) -> None:
    ask = {"prompt": "the quick brown", "max_tokens": 12}
    wanted = serve("writer").ask("generate", "writer", ask)
    split = serve("writer", memory_mb=0.13, offload_dir=str(tmp_path / "off"))
    assert split.ask("generate", "writer", ask) == wanted
    layers = split.worker.model_facts("writer")["layers"]
    assert layers == {"cpu": 1, "disk": 1}
    assert split.worker.canary()["models"]["writer"]["layers"] == layers


def test_free_memory_is_that_of_the_device_a_model_is_on(serve: Serve) -> None:
    worker = serve("writer").worker
    assert worker._loaded.gauge("writer").free_mb() is None
    worker.load_model("writer")
    free_mb = worker._loaded.gauge("writer").free_mb()
    assert free_mb is not None
    assert free_mb > 0

"""Models in memory: what they take, what does not fit, what cannot be loaded."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral.errors import WorkerError
from corral.worker.base import Failure
from corral.worker.inference import InferenceWorker
from corral.worker.inference.batching import BatchLimits, ModelSpeed, gather, run_all
from corral.worker.inference.call import ModelCall
from corral.worker.inference.errors import ModelOutOfMemory, is_out_of_memory
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load.device import CPU, Device, choose_dtype, find_devices
from corral.worker.inference.load.device_map import FreeMemory, make_plan
from corral.worker.inference.request import Generate
from corral.worker.runner.model_slots import ModelSlots
from tests.model_folder import Models
from tests.unit.worker.inference.conftest import Served

Serve = Callable[..., Served]


def failure(call: Callable[[], Any]) -> Failure:
    with pytest.raises(Failure) as caught:
        call()
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_model_takes_what_was_said_before_it_was_loaded(serve: Serve) -> None:
    worker = serve("writer", "reader", "reader-graph").worker
    told = worker.model_sizes()
    for name in ("writer", "reader", "reader-graph"):
        worker.load_model(name)
        assert worker.model_memory_mb(name) == pytest.approx(told[name], rel=0.05)


def test_two_models_with_room_for_one_take_turns(serve: Serve) -> None:
    worker = serve("writer", "other-writer").worker
    shelf = ModelSlots(worker, room=1)
    shelf.need("writer")
    shelf.need("other-writer")
    assert list(worker.canary()["models"]) == shelf.names == ["other-writer"]
    shelf.need("writer")
    assert list(worker.canary()["models"]) == ["writer"]


def test_what_does_not_fit_beside_the_others_is_not_loaded(serve: Serve) -> None:
    served = serve("writer", "other-writer")
    size = served.worker.model_sizes()["writer"]
    worker = serve("writer", "other-writer", memory_mb=1.5 * size).worker
    worker.load_model("writer")
    refused = failure(lambda: worker.load_model("other-writer"))
    assert refused.kind == "out_of_memory"
    assert isinstance(refused, ModelOutOfMemory)
    assert "model other-writer takes" in str(refused)
    worker.unload_model("writer")
    worker.load_model("other-writer")


def test_nothing_of_an_unloaded_model_stays(serve: Serve) -> None:
    served = serve("writer")
    before = _tensors()
    served.ask("generate", "writer", {"prompt": "the quick", "max_tokens": 4})
    assert _tensors() > before
    served.worker.unload_model("writer")
    assert _tensors() <= before
    assert served.worker.canary()["models"] == {}
    served.worker.unload_model("writer")


def _tensors() -> int:
    """How many parameters of models are alive in this process."""
    import gc

    import torch

    gc.collect()
    return sum(type(each) is torch.nn.Parameter for each in gc.get_objects())


def test_a_model_larger_than_memory_is_spread_and_answers_the_same(
    serve: Serve, tmp_path: Path
) -> None:
    ask = {"prompt": "the quick", "max_tokens": 6}
    whole = serve("writer")
    wanted = whole.ask("generate", "writer", ask)
    spread = serve("writer", memory_mb=0.1, offload_dir=str(tmp_path / "off"))
    assert spread.ask("generate", "writer", ask) == wanted
    size, all_of_it = (
        each.worker.model_memory_mb("writer") or 0.0 for each in (spread, whole)
    )
    assert size <= 0.1 < all_of_it


def test_plans_fill_the_emptiest_card_then_all_then_the_machine() -> None:
    cards = [Device("cuda", "cuda:0", 0), Device("cuda", "cuda:1", 1)]
    room = FreeMemory({0: 100.0, 1: 300.0}, machine_mb=1000.0)
    assert make_plan("m", 200, cards, "float16", room).device is cards[1]
    wide = make_plan("m", 350, cards, "float16", room)
    assert wide.is_spread
    assert list(wide.max_memory) == [0, 1, "cpu"]
    with pytest.raises(ModelOutOfMemory, match=r"takes 5000\.0 MB"):
        make_plan("m", 5000, cards, "float16", room)
    alone = FreeMemory({0: 100.0}, 1000.0, may_spread=False)
    with pytest.raises(ModelOutOfMemory):
        make_plan("m", 350, cards[:1], "float16", alone)


def test_precision_is_that_of_the_device_unless_told() -> None:
    assert choose_dtype(CPU) == "float32"
    assert choose_dtype(Device("mps", "mps")) == "float16"
    assert choose_dtype(CPU, "bfloat16") == "bfloat16"
    assert failure(lambda: choose_dtype(CPU, "int3")).kind == "bad_input"
    assert find_devices("auto", allowed=[]) == [CPU]
    assert "is unknown" in str(failure(lambda: find_devices("abacus")))


class Greedy:
    """A model whose batches take more memory than any machine has."""

    kind = ModelKind.GENERATE

    def __init__(self, most: int) -> None:
        self.most = most
        self.sizes: list[int] = []

    def measure(self, call: ModelCall) -> int:
        return 10

    def likeness(self, call: ModelCall) -> object:
        return "all"

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        self.sizes.append(len(calls))
        if len(calls) > self.most:
            import torch

            torch.empty(1 << 55)
        return [{"batch": len(calls)} for _ in calls]

    def weights_mb(self) -> float:
        return 0.0

    def unload(self) -> None:
        return None


def test_a_batch_that_memory_does_not_allow_is_halved_and_remembered() -> None:
    model, pace, trims = Greedy(most=2), ModelSpeed(), []
    calls = [ModelCall(Generate(prompt="a")) for _ in range(8)]
    answers = run_all(model, calls, BatchLimits(), pace, lambda: trims.append(1))
    assert answers == [{"batch": 2}] * 8
    assert model.sizes == [8, 4, 2, 2, 4, 2, 2]
    assert len(trims) == 3
    run_all(model, calls, BatchLimits(), pace, lambda: trims.append(1))
    assert model.sizes[7:] == [2, 2, 2, 2]


def test_a_call_that_memory_does_not_allow_alone_is_for_another_worker() -> None:
    calls = [ModelCall(Generate(prompt="a")) for _ in range(3)]
    answers = run_all(Greedy(most=0), calls, BatchLimits(), ModelSpeed(), lambda: None)
    assert all(isinstance(answer, ModelOutOfMemory) for answer in answers)
    assert {answer.kind for answer in answers if isinstance(answer, Failure)} == {
        "out_of_memory"
    }
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


def test_batches_keep_to_count_tokens_and_time() -> None:
    def sizes(
        costs: list[int], limits: BatchLimits, pace: ModelSpeed
    ) -> list[list[int]]:
        found = gather(["like"] * len(costs), costs, limits, pace)
        return [[costs[place] for place in batch.places] for batch in found]

    costs = [5, 100, 5, 5, 100]
    assert sizes(costs, BatchLimits(count=2), ModelSpeed()) == [[5, 5], [5, 100], [100]]
    # Padded to the longest, a short one beside a long one costs as much.
    assert sizes(costs, BatchLimits(tokens=200), ModelSpeed()) == [
        [5, 5, 5],
        [100, 100],
    ]
    assert sizes([500, 500], BatchLimits(tokens=200), ModelSpeed()) == [[500], [500]]
    known = ModelSpeed(s_per_token=0.01)
    assert sizes([10] * 4, BatchLimits(latency_s=0.2), known) == [[10, 10], [10, 10]]
    assert gather([None, None], [1, 1], BatchLimits(), ModelSpeed()) != gather(
        ["a", "a"], [1, 1], BatchLimits(), ModelSpeed()
    )


def copied(models: Models, name: str, place: Path) -> Path:
    models.have(name)
    shutil.copytree(models.place / name, place / name)
    return place / name


def started(place: Path, **params: Any) -> InferenceWorker:
    worker = InferenceWorker(model_dir=str(place), device="cpu", **params)
    worker.start()
    return worker


def test_an_unknown_model_is_named_with_those_there_are(serve: Serve) -> None:
    worker = serve("writer").worker
    unknown = failure(lambda: worker.load_model("wirter"))
    assert unknown.kind == "unknown_model"
    assert "no model 'wirter'" in str(unknown)
    assert "writer" in str(unknown)
    for name in ("..", "../writer", "a/b", ""):
        assert failure(lambda n=name: worker.load_model(n)).kind == "unknown_model"  # type: ignore[misc]


def test_a_file_that_is_cut_off_is_named(models: Models, tmp_path: Path) -> None:
    file = copied(models, "writer", tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    broken = failure(lambda: started(tmp_path).load_model("writer"))
    assert broken.kind == "corrupt_model"
    assert "writer/model.safetensors is corrupt: it has" in str(broken)
    file.write_bytes(b"nonsense" * 9)
    again = failure(lambda: started(tmp_path).load_model("writer"))
    assert "its header is broken" in str(again)
    assert started(tmp_path).model_sizes() == {}


def test_a_file_with_another_hash_is_named_with_it(
    models: Models, tmp_path: Path
) -> None:
    folder = copied(models, "writer", tmp_path)
    right = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    told = {"writer": {"files": {"config.json": right}}}
    started(tmp_path, models=told).load_model("writer")
    told["writer"]["files"]["config.json"] = "0" * 64
    wrong = failure(lambda: started(tmp_path, models=told).load_model("writer"))
    assert wrong.kind == "corrupt_model"
    assert right in str(wrong)
    assert "0" * 64 in str(wrong)


def test_a_broken_graph_is_named(models: Models, tmp_path: Path) -> None:
    folder = copied(models, "reader-graph", tmp_path)
    (folder / "model.onnx").write_bytes(b"no graph")
    broken = failure(lambda: started(tmp_path).load_model("reader-graph"))
    assert (broken.kind, "model.onnx is corrupt" in str(broken)) == (
        "corrupt_model",
        True,
    )


def test_a_model_is_not_asked_for_what_it_cannot_do(serve: Serve) -> None:
    served = serve("writer")
    wrong = failure(lambda: served.ask("embed", "writer", {"text": "a"}))
    assert wrong.kind == "unsupported_type"
    assert str(wrong) == "model writer is made to generate, not to embed"


def test_code_of_a_model_runs_only_where_its_definition_allows_it(
    models: Models, tmp_path: Path
) -> None:
    folder = copied(models, "reader", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "stranger"
    config["auto_map"] = {
        "AutoConfig": "code.StrangeConfig",
        "AutoModel": "code.StrangeModel",
    }
    (folder / "config.json").write_text(json.dumps(config))
    mark = tmp_path / "it ran"
    (folder / "code.py").write_text(
        "from transformers import BertConfig, BertModel\n"
        f"open({str(mark)!r}, 'w').close()\n"
        "class StrangeConfig(BertConfig):\n    model_type = 'stranger'\n"
        "class StrangeModel(BertModel):\n    config_class = StrangeConfig\n"
    )
    refused = failure(lambda: started(tmp_path).load_model("reader"))
    assert refused.kind == "remote_code"
    assert "trust_remote_code in the model's definition" in str(refused)
    assert not mark.exists()
    allowed = started(tmp_path, models={"reader": {"trust_remote_code": True}})
    allowed.load_model("reader")
    assert mark.exists()


def test_a_type_nobody_knows_and_a_folder_without_a_model_are_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    empty = failure(lambda: started(tmp_path).load_model("empty"))
    assert empty.kind == "unsupported_model"
    told = {"empty": {"type": "poetry"}}
    strange = failure(lambda: started(tmp_path, models=told).load_model("empty"))
    assert "unknown type 'poetry'" in str(strange)


def test_parameters_that_are_wrong_stop_the_worker_with_one_line() -> None:
    with pytest.raises(WorkerError, match="max_bach"):
        InferenceWorker(max_bach=3)
    worker = InferenceWorker(device="abacus")
    with pytest.raises(WorkerError, match="device 'abacus' is unknown"):
        worker.start()
    worker = InferenceWorker(models={"m": {"trust": True}})
    with pytest.raises(WorkerError, match="definition of model m"):
        worker.start()

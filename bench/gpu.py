"""Models on a GPU: text generation through InferenceWorker beside the same batch
directly in transformers, memory, a model split between card and processor, and the
parts of gpu_stack.py: `python bench/gpu.py`, a table at the end.

Made for a card; `--tiny` tries the script on a processor, without the figures that only
a card can tell. `--alone` leaves the cluster out.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch

from bench import result
from bench.gpu_weights import TINY as TINY_SHAPE
from bench.gpu_weights import Shape, prompt, save_model
from corral.worker.base import Context
from corral.worker.inference import InferenceWorker

MB = 1024 * 1024
NAME = "bench-llama"
SHAPE = Shape()


@dataclass(frozen=True, slots=True)
class Size:
    """`singles` requests are also run one by one, in the first of the rounds."""

    shape: Shape = SHAPE
    batch: int = 32
    singles: int = 4
    tokens: int = 128
    rounds: int = 12
    single_rounds: int = 2


TINY = Size(TINY_SHAPE, batch=8, singles=2, tokens=16, rounds=6)


class Silent:
    """A runner that nobody listens to."""

    def progress(self, task_id: str, attempt: int, fraction: float, text: str) -> None:
        return None

    def log(self, text: str) -> None:
        return None

    def is_cancelled(self, task_id: str) -> bool:
        return False

    def on_stop(self, task_id: str, call: Callable[[str], None]) -> None:
        return None

    def patience(self, task_id: str, attempt: int, seconds: float) -> None:
        return None

    def emit(self, task_id: str, attempt: int, value: Any) -> None:
        return None

    def go_on(self, task_id: str, attempt: int, count: int) -> None:
        return None

    def decode(self, text: Any) -> Any:
        return text


def payloads(size: Size) -> list[dict[str, Any]]:
    return [{"prompt": prompt(i), "max_tokens": size.tokens} for i in range(size.batch)]


def answers(worker: InferenceWorker, asks: list[dict[str, Any]]) -> list[Any]:
    worker.contexts = [
        Context(Silent(), f"t{i}", 1, "generate", model=NAME) for i in range(len(asks))
    ]
    return list(worker.run_batch(asks))


def through(worker: InferenceWorker, asks: list[dict[str, Any]]) -> int:
    """Tokens written by the worker, for a batch of requests."""
    return sum(answer["tokens"] for answer in answers(worker, asks))


def directly(model: Any, tokenizer: Any, asks: list[dict[str, Any]]) -> int:
    """Tokens written by transformers alone, for the same batch."""
    read = tokenizer(
        [ask["prompt"] for ask in asks],
        padding=True,
        padding_side="left",
        return_tensors="pt",
        return_token_type_ids=False,
    ).to(model.device)
    with torch.inference_mode():
        found = model.generate(
            **read, max_new_tokens=asks[0]["max_tokens"], do_sample=False
        )
    new = found[:, read["input_ids"].shape[1] :]
    tokenizer.batch_decode(new, skip_special_tokens=True)
    return int(new.numel())


def speeds(works: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Tokens a second of each, by round, after one to warm up.

    They take turns, each round the other way round, so that what changes meanwhile
    changes for all of them.
    """
    for work in works.values():
        work()
    found: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            _settle()
            began = time.perf_counter()
            tokens = works[name]()
            _settle()
            found[name].append(tokens / (time.perf_counter() - began))
    return found


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def used_mb() -> float:
    """What is taken of the card, as the card itself says."""
    free, total = torch.cuda.mem_get_info()
    return float(total - free) / MB


def measure_speed(worker: InferenceWorker, size: Size) -> dict[str, float]:
    asks = payloads(size)
    loaded: Any = worker._loaded.loaded(NAME)
    model, tokenizer = loaded._model, loaded._tokenizer
    singles = asks[: size.singles]
    # The same weights in the same process.
    pair = {
        "direct": lambda: directly(model, tokenizer, asks),
        "corral": lambda: through(worker, asks),
    }
    alone = {"single": lambda: sum(through(worker, [ask]) for ask in singles)}
    rounds = speeds(pair, size.rounds)
    found = rounds | speeds(alone, size.single_rounds)
    figures = {f"tokens_per_s_{k}": statistics.median(v) for k, v in found.items()}
    # Of the two of each round: the processor that drives the card changes its pace.
    ratios = [c / d for c, d in zip(rounds["corral"], rounds["direct"], strict=True)]
    single = figures["tokens_per_s_single"]
    return {
        **figures,
        "tokens_per_s_ratio": statistics.median(ratios),
        "tokens_per_s_ratio_least": min(ratios),
        "tokens_per_s_ratio_most": max(ratios),
        "batch_speedup": figures["tokens_per_s_corral"] / single,
    }


def measure_memory(worker: InferenceWorker, size: Size) -> dict[str, float]:
    """Load and unload four times: what was learned from the first three beside what
    the card itself says of the fourth, and the most that any unload left behind.
    """
    learned, taken, left, before = 0.0, 0.0, 0.0, used_mb()
    for turn in range(4):
        worker.load_model(NAME)
        taken = used_mb() - before
        if turn < 3:
            learned = worker.model_memory_mb(NAME) or 0.0
        through(worker, payloads(size)[:2])
        worker.unload_model(NAME)
        left = max(left, used_mb() - before)
    return {
        "model_learned_mb": learned,
        "model_taken_mb": taken,
        "memory_error_pct": 100 * abs(learned - taken) / taken,
        "unload_left_pct": 100 * left / before,
    }


def measure_split(folder: str, size: Size) -> dict[str, float]:
    """A model that the card may have half of: the rest lies in the machine's memory.

    In single precision, where the same sums in another order end in the same words.
    """
    ask = [{**payloads(size)[0], "max_tokens": min(size.tokens, 32)}]
    whole, whole_mb, _ = _one_text(folder, None, ask)
    parted, _, places = _one_text(folder, whole_mb * 0.6, ask)
    return {
        "split_same_text": float(parted == whole),
        "split_layers_card": float(sum(place != "cpu" for place in places)),
        "split_layers_cpu": float(sum(place == "cpu" for place in places)),
    }


def _one_text(
    folder: str, memory_mb: float | None, ask: list[dict[str, Any]]
) -> tuple[str, float, list[str]]:
    worker = InferenceWorker(model_dir=folder, dtype="float32", memory_mb=memory_mb)
    worker.start()
    worker.load_model(NAME)
    model: Any = worker._loaded.loaded(NAME)
    where = getattr(model._model, "hf_device_map", {"": "0"})
    layers = [str(place) for part, place in where.items() if ".layers." in part]
    (answer,) = answers(worker, ask)
    taken_mb = worker.model_memory_mb(NAME) or 0.0
    worker.unload_model(NAME)
    return answer["text"], taken_mb, layers


def measure_stack(size: Size) -> dict[str, float]:
    """The parts that need a cluster, which has the card to itself."""
    script = Path(__file__).with_name("gpu_stack.py")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        argv = [sys.executable, str(script), "--out", str(out)]
        argv += ["--tiny"] if size == TINY else []
        subprocess.run(argv, check=True)
        found: dict[str, float] = json.loads(out.read_text(encoding="utf-8"))
    return found


def in_process(size: Size) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / NAME, size.shape)
        worker = InferenceWorker(model_dir=folder, max_batch=size.batch)
        worker.start()
        # Once, so that what CUDA itself takes is there before anything is compared.
        worker.load_model(NAME)
        figures = measure_speed(worker, size)
        worker.unload_model(NAME)
        if torch.cuda.is_available():
            figures |= measure_memory(worker, size)
            figures |= measure_split(folder, size)
            torch.cuda.empty_cache()
    return figures


def show(figures: dict[str, float]) -> None:
    for key, value in figures.items():
        print(f"{key:36} {value:12.3f}")


def main() -> None:
    size = TINY if "--tiny" in sys.argv else Size()
    began = time.perf_counter()
    figures = in_process(size)
    show(figures)
    print(f"after {time.perf_counter() - began:.0f} s: the cluster's parts", flush=True)
    if "--alone" not in sys.argv:
        figures |= measure_stack(size)
        lanes, direct = figures["tokens_per_s_lanes"], figures["tokens_per_s_direct"]
        figures["lanes_ratio"] = lanes / direct
    show(figures)
    if torch.cuda.is_available():
        target = "gpu_alone" if "--alone" in sys.argv else "gpu"
        print(result.write(target, figures, ["torch", "transformers", "accelerate"]))


if __name__ == "__main__":
    main()

"""Text generation on a GPU through InferenceWorker, beside the same batch directly in
transformers: `python bench/gpu.py`, a table at the end.

Made for a card; `--tiny` tries the script on a processor, without the figures that only
a card can tell. Weights are random: for speed
and memory they behave like trained ones.
"""

from __future__ import annotations

import statistics
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
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from bench import result
from corral.worker.base import Context
from corral.worker.inference import InferenceWorker

MB = 1024 * 1024
NAME = "bench-llama"


@dataclass(frozen=True, slots=True)
class Size:
    """`singles` requests are also run one by one."""

    width: int = 2048
    layers: int = 24
    batch: int = 32
    singles: int = 4
    tokens: int = 128
    rounds: int = 5


TINY = Size(width=64, layers=2, batch=8, singles=2, tokens=16, rounds=6)


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


def save_model(place: Path, size: Size) -> None:
    """A Llama of random weights whose every text is as long as it may be."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        special_tokens=["<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")
    config = LlamaConfig(
        vocab_size=32_000 if size.width > 64 else 512,
        hidden_size=size.width,
        intermediate_size=size.width * 11 // 4,
        num_hidden_layers=size.layers,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config)
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model.to(dtype).save_pretrained(str(place / NAME))
    tokenizer.save_pretrained(str(place / NAME))
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def payloads(size: Size) -> list[dict[str, Any]]:
    return [
        {"prompt": f"request {i:04} " * 8, "max_tokens": size.tokens}
        for i in range(size.batch)
    ]


def through(worker: InferenceWorker, asks: list[dict[str, Any]]) -> int:
    """Tokens written by the worker, for a batch of requests."""
    worker.contexts = [
        Context(Silent(), f"t{i}", 1, "generate", model=NAME) for i in range(len(asks))
    ]
    answers = worker.run_batch(asks)
    return sum(answer["tokens"] for answer in answers)


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


def speeds(works: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """Tokens a second of each: the median of several rounds after one to warm up.

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
    return {name: statistics.median(each) for name, each in found.items()}


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def used_mb() -> float:
    """What is taken of the card, as the card itself says."""
    free, total = torch.cuda.mem_get_info()
    return float(total - free) / MB


def measure_speed(worker: InferenceWorker, size: Size) -> dict[str, float]:
    asks = payloads(size)
    loaded: Any = worker._stock.loaded(NAME)
    model, tokenizer = loaded._model, loaded._tokenizer
    singles = asks[: size.singles]
    # The same weights in the same process.
    found = speeds(
        {
            "direct": lambda: directly(model, tokenizer, asks),
            "corral": lambda: through(worker, asks),
            "single": lambda: sum(through(worker, [ask]) for ask in singles),
        },
        size.rounds,
    )
    return {
        **{f"tokens_per_s_{name}": each for name, each in found.items()},
        "tokens_per_s_ratio": found["corral"] / found["direct"],
        "batch_speedup": found["corral"] / found["single"],
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


def main() -> None:
    size = TINY if "--tiny" in sys.argv else Size()
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), size)
        worker = InferenceWorker(model_dir=folder, max_batch=size.batch)
        worker.start()
        # Once, so that what CUDA itself takes is there before anything is compared.
        worker.load_model(NAME)
        figures = measure_speed(worker, size)
        worker.unload_model(NAME)
        if torch.cuda.is_available():
            figures |= measure_memory(worker, size)
    for key, value in figures.items():
        print(f"{key:24} {value:12.3f}")
    if torch.cuda.is_available():
        print(result.write("gpu", figures, ["torch", "transformers", "accelerate"]))


if __name__ == "__main__":
    main()

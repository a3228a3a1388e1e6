"""Models on a card behind a whole cluster: the time to the first token beside the same
call directly, a runner killed in the middle of a text, and twenty models that do not
fit together, asked for unevenly.

`python bench/gpu_stack.py`; `--tiny` tries the script on a processor. bench/gpu.py runs
it as one of its parts.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import httpx
import torch

from bench.gpu_bind import cluster, until
from bench.gpu_kill import measure_kill
from bench.gpu_weights import TINY, Shape, link_model, prompt, save_model
from corral.client import Client
from corral.worker.inference import InferenceWorker

WORKER = "bench.gpu_stack:CountingWorker"
SMITH, TURNS = "smith", "weighted_round_robin"
TOKENS = 16


@dataclass(frozen=True, slots=True)
class Size:
    """`shapes` are shared by `names` models each; requests come within `span_s`."""

    shapes: tuple[Shape, ...] = (
        Shape(2048, 24),
        Shape(3072, 26),
        Shape(3584, 28),
        Shape(4096, 32),
    )
    names: int = 5
    requests: int = 128
    span_s: float = 80.0
    first_tokens: int = 40
    lanes: int = 32
    lane_tokens: int = 128


SMALL = Size(
    (TINY,), names=4, requests=24, span_s=3.0, first_tokens=5, lanes=4, lane_tokens=24
)


class CountingWorker(InferenceWorker):
    """Also tells how often the card refused memory, caught or not."""

    def _healthy(self) -> dict[str, Any]:
        told: dict[str, Any] = {**super()._healthy(), "ooms": 0}
        if torch.cuda.is_available():
            told["ooms"] = int(torch.cuda.memory_stats().get("num_ooms", 0))
        return told


def save_models(place: Path, size: Size) -> list[str]:
    """By name; large and small ones take turns."""
    made = []
    for i, shape in enumerate(size.shapes):
        save_model(place / f"m{i}", shape)
        made.append(place / f"m{i}")
    names = [folder.name for folder in made]
    for copy, folder in itertools.product(range(1, size.names), made):
        name = f"{folder.name}-{copy}"
        link_model(folder, place / name)
        names.append(name)
    return names


def launch(client: Client, place: Path, lanes: int = 1) -> None:
    has_card = torch.cuda.is_available()
    client.launch_worker(
        WORKER,
        name="models",
        job_types=["generate", "health_check"],
        params={"model_dir": str(place), "max_batch": 32},
        gpus=1 if has_card else None,
        concurrency=lanes,
    )
    until("the worker is there", lambda: _is_ready(client))
    # Its runner imports torch first.
    client.run("health_check", {}, wait_timeout=120)


def _is_ready(client: Client) -> bool:
    return any("generate" in w.job_types for w in client.workers(status="online"))


def direct_first_s(place: Path, name: str, count: int) -> list[float]:
    """From the call to the first token, in this process with transformers alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.generation.streamers import BaseStreamer

    class First(BaseStreamer):  # type: ignore[misc, unused-ignore]
        at: float | None = None
        puts = 0

        def put(self, value: Any) -> None:
            value.tolist()
            self.puts += 1
            if self.puts == 2:  # the prompt comes first
                self.at = time.perf_counter()

        def end(self) -> None:
            return None

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(str(place / name))
    model: Any = AutoModelForCausalLM.from_pretrained(
        str(place / name), dtype="auto", device_map=device
    )
    took = []
    for i in range(count + 3):
        first = First()
        began = time.perf_counter()
        read = tokenizer(prompt(i), return_tensors="pt", return_token_type_ids=False)
        with torch.inference_mode():
            model.generate(
                **read.to(device),
                max_new_tokens=TOKENS,
                do_sample=False,
                streamer=first,
            )
        assert first.at is not None
        took.append(first.at - began)
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return took[3:]


def stack_first_s(client: Client, key: str, name: str, count: int) -> list[float]:
    """From the request to the first piece of text, through everything."""
    took = []
    with httpx.Client(base_url=client.url, timeout=120) as web:
        for i in range(count + 3):
            ask = {"model": name, "prompt": prompt(i), "max_tokens": TOKENS}
            body = {**ask, "temperature": 0, "stream": True}
            head = {"Authorization": f"Bearer {key}"}
            began, first = time.perf_counter(), None
            with web.stream("POST", "/v1/completions", json=body, headers=head) as said:
                for line in said.iter_lines():
                    if first is None and _has_text(line):
                        first = time.perf_counter()
            assert first is not None, said.status_code
            took.append(first - began)
    return took[3:]


def _has_text(line: str) -> bool:
    if not line.startswith("data: {"):
        return False
    return any(choice["text"] for choice in json.loads(line[6:])["choices"])


def measure_first(place: Path, home: Path, name: str, size: Size) -> dict[str, float]:
    folder = {"CORRAL_MODEL_CACHE_DIR": str(place)}
    with cluster(home, is_simulated=False, worker=None, **folder) as client:
        launch(client, place, size.lanes)
        key = (home / "admin.key").read_text(encoding="utf-8").strip()
        stack = stack_first_s(client, key, name, size.first_tokens)
        print(f"first tokens: {statistics.median(stack):.4f} s", flush=True)
        together = measure_together(client, name, size)
        print(together, flush=True)
        killed = measure_kill(client, key, name)
    direct = direct_first_s(place, name, size.first_tokens)
    here, there = statistics.median(stack), statistics.median(direct)
    return {
        "ttft_ms": here * 1e3,
        "ttft_direct_ms": there * 1e3,
        "ttft_extra_ms": (here - there) * 1e3,
        **together,
        **killed,
    }


def measure_together(client: Client, name: str, size: Size) -> dict[str, float]:
    """Tokens a second of single requests that come one after the other and are written
    together: the median of three rounds after one to warm up.
    """
    found = []
    for _ in range(4):
        began = time.perf_counter()
        asks = [
            {"prompt": prompt(i), "max_tokens": size.lane_tokens}
            for i in range(size.lanes)
        ]
        ids = [client.submit("generate", a, model_name=name).task_id for a in asks]
        ended = client.wait_many(ids, 120)
        tokens = sum(task.result["tokens"] for task in ended)
        found.append(tokens / (time.perf_counter() - began))
    return {"tokens_per_s_lanes": statistics.median(found[1:])}


def arrivals(names: list[str], size: Size) -> list[tuple[float, str]]:
    """When which model is asked for: some far more often than others."""
    dice = random.Random(20)
    order = names[:]
    dice.shuffle(order)
    weights = [1 / (rank + 1) ** 1.1 for rank in range(len(order))]
    whens = sorted(dice.uniform(0, size.span_s) for _ in range(size.requests))
    whats = dice.choices(order, weights, k=size.requests)
    return list(zip(whens, whats, strict=True))


def measure_many(
    place: Path, home: Path, names: list[str], size: Size, strategy: str
) -> dict[str, float]:
    settings = {
        "CORRAL_STRATEGY": strategy,
        "CORRAL_MODEL_CACHE_DIR": str(place),
        "CORRAL_MODEL_CACHE_SIZE": str(len(names) if torch.cuda.is_available() else 2),
    }
    with cluster(home, is_simulated=False, worker=None, **settings) as client:
        launch(client, place)
        began, ids = time.time(), []
        for number, (at, name) in enumerate(arrivals(names, size)):
            time.sleep(max(began + at - time.time(), 0))
            asked = {"prompt": prompt(number), "max_tokens": TOKENS}
            ids.append(client.submit("generate", asked, model_name=name).task_id)
        ended = client.wait_many(ids, 400)
        loads = sum(w.performance_metrics["model_loads"] for w in client.workers())
        health = client.run("health_check", {}, wait_timeout=60)
        found = [m for w in client.models() for m in w.models if m.status == "loaded"]
        held = {m.name: m.memory_usage or 0.0 for m in found}
    failed = [task for task in ended if not task.is_completed]
    assert not failed, failed[0].error
    took = [_took_s(task) for task in ended]
    real, learned = float(health["memory_used_mb"]), sum(held.values())
    return {
        "mean_s": statistics.fmean(took),
        "p95_s": statistics.quantiles(took, n=20)[-1],
        "loads": float(loads),
        "warm_share_pct": 100 * (1 - loads / len(ended)),
        "oom_count": float(health["ooms"]),
        "retried": float(sum(task.attempt > 1 for task in ended)),
        "held_error_pct": 100 * abs(learned - real) / max(real, 1.0),
        "held_models": float(len(held)),
        "held_mb": learned,
    }


def _took_s(task: Any) -> float:
    return float((task.completed_at - task.created_at).total_seconds())


def measure(size: Size) -> dict[str, float]:
    figures: dict[str, float] = {}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "models"
        place.mkdir()
        names = save_models(place, size)
        print(f"models written after {time.perf_counter() - began:.0f} s", flush=True)
        figures["models"] = len(names)
        figures["models_gb"] = sum(
            file.stat().st_size / 1e9 for file in place.rglob("*.safetensors")
        )
        for part in ("first", SMITH, TURNS):
            home = Path(tempfile.mkdtemp(prefix="corral-gpu-"))
            if part == "first":
                figures |= measure_first(place, home, names[0], size)
            else:
                found = measure_many(place, home, names, size, part)
                figures |= {f"{part}_{key}": value for key, value in found.items()}
            took = time.perf_counter() - began
            said = {key: round(value, 3) for key, value in figures.items()}
            print(f"{part} after {took:.0f} s: {said}", flush=True)
    figures["oom_count"] = figures[f"{SMITH}_oom_count"] + figures[f"{TURNS}_oom_count"]
    return figures


def main() -> None:
    figures = measure(SMALL if "--tiny" in sys.argv else Size())
    for key, value in figures.items():
        print(f"{key:36} {value:12.3f}")
    if "--out" in sys.argv:
        Path(sys.argv[sys.argv.index("--out") + 1]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()

"""A runner killed in the middle of a streamed text: is the text whole, and is the
card's memory back? A part of gpu_stack.py.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import psutil

from bench.gpu_weights import prompt
from corral.client import Client

TOKENS = 400
CUT = 60
"""After so many pieces the runner is killed."""


def measure_kill(client: Client, key: str, name: str) -> dict[str, float]:
    """Whole: all its tokens, and what was streamed is what is kept as the result.

    In half precision the new attempt, which reads at once what the old one wrote step
    by step, may choose another word than an unbroken one where two are as good.
    """
    head = {"Authorization": f"Bearer {key}"}
    body = {"model": name, "prompt": prompt(1), "max_tokens": TOKENS, "temperature": 0}
    with httpx.Client(base_url=client.url, timeout=120, headers=head) as web:
        unbroken = web.post("/v1/completions", json=body).json()["choices"][0]["text"]
        before, said = card_used_mb(), []
        for told in _pieces(web, body):
            said.append(told)
            if len(said) == CUT:
                kill_runner(client)
        after = card_used_mb()
    task, text = client.get_task(said[0][0]), "".join(piece for _, piece in said)
    same = sum(itertools.takewhile(bool, map(str.__eq__, text, unbroken)))
    is_whole = task.result["text"] == text and task.result["tokens"] == TOKENS
    return {
        "kill_attempts": float(task.attempt),
        "kill_pieces": float(len(said)),
        "kill_text_is_whole": float(is_whole),
        "kill_same_pct": 100 * same / len(text),
        "kill_left_mb": after - before,
    }


def _pieces(web: httpx.Client, body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each with its task."""
    ask = {**body, "stream": True}
    with web.stream("POST", "/v1/completions", json=ask) as said:
        for line in said.iter_lines():
            if line.startswith("data: {"):
                told = json.loads(line[6:])
                task_id = told["id"].removeprefix("cmpl-")
                texts = (choice["text"] for choice in told["choices"])
                yield from ((task_id, text) for text in texts if text)


def kill_runner(client: Client) -> None:
    (worker,) = (w for w in client.workers() if "generate" in w.job_types)
    assert worker.pid is not None
    for runner in psutil.Process(worker.pid).children():
        os.kill(runner.pid, signal.SIGKILL)


def card_used_mb() -> float:
    """As the card's own tool says; nothing where there is no card."""
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0.0
    return float(said.stdout.split()[0])

"""A runner killed in the middle of a streamed text: is the text whole, and is the
card's memory back? A part of gpu_stack.py.
"""

from __future__ import annotations

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
    head = {"Authorization": f"Bearer {key}"}
    body = {"model": name, "prompt": prompt(1), "max_tokens": TOKENS, "temperature": 0}
    with httpx.Client(base_url=client.url, timeout=120, headers=head) as web:
        unbroken = web.post("/v1/completions", json=body).json()["choices"][0]["text"]
        before = card_used_mb()
        said = []
        for count, piece in enumerate(_pieces(web, body)):
            said.append(piece)
            if count == CUT:
                kill_runner(client)
        after = card_used_mb()
    return {
        "kill_pieces": float(len(said)),
        "kill_text_is_whole": float("".join(said) == unbroken),
        "kill_left_mb": after - before,
    }


def _pieces(web: httpx.Client, body: dict[str, Any]) -> Iterator[str]:
    ask = {**body, "stream": True}
    with web.stream("POST", "/v1/completions", json=ask) as said:
        for line in said.iter_lines():
            if line.startswith("data: {"):
                choices = json.loads(line[6:])["choices"]
                yield from (choice["text"] for choice in choices if choice["text"])


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

"""Worker classes as a user writes them.

Started from the folder above with
`corral worker launch examples.workers:PrimesWorker --job-type primes`, and tried with
`corral run primes '{"upto": 100000}'`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any

from corral import Worker


class PrimesWorker(Worker):
    """Counts the primes up to `upto`, tells how far it is, and stops when asked."""

    def run(self, payload: dict[str, Any]) -> dict[str, int]:
        upto = int(payload["upto"])
        sieve = bytearray([1]) * (upto + 1)
        sieve[:2] = bytes(len(sieve[:2]))
        last = int(upto**0.5)
        for number in range(2, last + 1):
            if sieve[number]:
                sieve[number * number :: number] = bytes(
                    len(range(number * number, upto + 1, number))
                )
            if number % 1000 == 0:
                if self.context.cancelled:
                    raise RuntimeError("cancelled half way")
                self.context.progress(number / last, f"sieved by {number}")
        return {"upto": upto, "primes": sum(sieve)}


class WordCountWorker(Worker):
    """Counts words; `top` of them come back. Many texts are done in one go.

    `run_batch` is where a model on a GPU would take all prompts that wait at once.
    """

    def __init__(self, top: int = 3, **params: Any) -> None:
        super().__init__(**params)
        self.top = top

    def start(self) -> None:
        self.word = re.compile(r"\w+")

    def run_batch(self, payloads: list[Any]) -> list[Any]:
        return [self._count(payload) for payload in payloads]

    def _count(self, payload: Any) -> Any:
        if not isinstance(payload, dict) or not isinstance(payload.get("text"), str):
            return ValueError('this worker needs a payload like {"text": "some words"}')
        words = Counter(self.word.findall(payload["text"].lower()))
        print(f"{words.total()} words")
        return {"words": words.total(), "top": words.most_common(self.top)}


class FlakyWorker(Worker):
    """Fails a task's first `failures` tries (1 unless the payload says so)."""

    def run(self, payload: dict[str, Any]) -> dict[str, int]:
        time.sleep(float(payload.get("seconds", 0.0)))
        if self.context.attempt <= int(payload.get("failures", 1)):
            raise RuntimeError(f"try {self.context.attempt} was not meant to work")
        return {"attempt": self.context.attempt}

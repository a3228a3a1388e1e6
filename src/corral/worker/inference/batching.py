"""Which calls go through a model together, and what happens when they do not fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from corral.worker.base import Failure
from corral.worker.inference.call import Loaded, ModelCall
from corral.worker.inference.errors import ModelOutOfMemory, is_out_of_memory
from corral.worker.inference.load.batch_memory import BatchMemory, no_gauge

Answer = dict[str, Any] | Failure
_LEARN = 0.3


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one batch may be at most: calls, tokens with padding, expected seconds.

    No seconds means that it may take as long as it takes.
    """

    count: int = 32
    tokens: int = 65_536
    latency_s: float | None = None


@dataclass(slots=True)
class ModelSpeed:
    """How fast a model is, learned from the batches it has run."""

    s_per_token: float | None = None
    most: int | None = None
    """The largest batch that memory allowed, once one was too large."""

    def learn(self, tokens: int, took_s: float) -> None:
        each = took_s / max(tokens, 1)
        old = self.s_per_token
        self.s_per_token = each if old is None else old + _LEARN * (each - old)

    def tokens_in(self, latency_s: float | None) -> float:
        if latency_s is None or not self.s_per_token:
            return float("inf")
        return latency_s / self.s_per_token


@dataclass(frozen=True, slots=True)
class ModelBatch:
    """Calls by their place in the order, and what they cost with padding."""

    places: tuple[int, ...]
    tokens: int


def gather(
    keys: Sequence[object],
    costs: Sequence[int],
    limits: BatchLimits,
    pace: ModelSpeed,
    fits: float = math.inf,
) -> list[ModelBatch]:
    """Like calls together, those of like length side by side, within the limits.

    `fits` is how many tokens memory allows. A call that is over the limits by itself
    goes alone.
    """
    most = min(limits.count, pace.most or limits.count)
    room = min(limits.tokens, pace.tokens_in(limits.latency_s), fits)
    groups: dict[object, list[int]] = {}
    for place, key in enumerate(keys):
        # What is like nothing is a group by itself.
        groups.setdefault((place,) if key is None else (None, key), []).append(place)
    batches = []
    for group in groups.values():
        part: list[int] = []
        for place in sorted(group, key=lambda p: (costs[p], p)):
            # Sorted: this one is the longest so far, and all are padded to it.
            if part and (len(part) >= most or costs[place] * (len(part) + 1) > room):
                batches.append(_batch(part, costs))
                part = []
            part.append(place)
        batches.append(_batch(part, costs))
    return batches


def _batch(places: list[int], costs: Sequence[int]) -> ModelBatch:
    return ModelBatch(tuple(places), costs[places[-1]] * len(places))


def run_all(
    model: Loaded,
    calls: Sequence[ModelCall],
    limits: BatchLimits,
    pace: ModelSpeed,
    trim: Callable[[], None],
    gauge: BatchMemory | None = None,
) -> list[Answer]:
    """Every call's answer, or why it has none, in order."""
    gauge = gauge or no_gauge()
    answers: list[Answer | None] = [None] * len(calls)
    costs: dict[int, int] = {}
    for place, call in enumerate(calls):
        try:
            costs[place] = model.measure(call)
        except Failure as error:
            answers[place] = error
    ready = list(costs)
    keys = [model.likeness(calls[place]) for place in ready]
    fits = gauge.tokens()
    for batch in gather(keys, [costs[p] for p in ready], limits, pace, fits):
        places = [ready[i] for i in batch.places]
        began = time.perf_counter()
        with gauge.batch(len(places), batch.tokens):
            done = _halve(model, [calls[p] for p in places], pace, trim)
        pace.learn(batch.tokens, time.perf_counter() - began)
        for place, answer in zip(places, done, strict=True):
            answers[place] = answer
    return [a for a in answers if a is not None]


def _halve(
    model: Loaded, calls: list[ModelCall], pace: ModelSpeed, trim: Callable[[], None]
) -> list[Answer]:
    """Run a batch; when memory runs out, again in halves, down to single calls."""
    try:
        return list(model.run(calls))
    except Failure as error:
        if len(calls) == 1:
            return [error]
        return [
            answer for call in calls for answer in _halve(model, [call], pace, trim)
        ]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        said = str(error)
    # Outside the handler: the exception holds on to what the batch had allocated.
    trim()
    if len(calls) == 1:
        return [ModelOutOfMemory(f"out of memory, even alone: {said}")]
    half = len(calls) // 2
    pace.most = min(pace.most or half, half)
    parts = (calls[:half], calls[half:])
    return [answer for part in parts for answer in _halve(model, part, pace, trim)]

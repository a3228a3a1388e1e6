"""Chooses the next token of every row of a batch, each row by its own values.

Every row has its own source of chance, which tells the same for the same step: its text
depends neither on the rows that happen to be generated beside it, nor on whether it
was begun by an attempt that was lost.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import torch

from corral.worker.inference.request import Generate

_NEVER = float("-inf")


class RowNoise:
    """Noise for each step of one row: by its seed and the step's number alone."""

    def __init__(self, seed: int | None, device: Any) -> None:
        self._seed = secrets.randbits(63) if seed is None else seed
        # Not every device has chance of its own; the processor always has.
        is_cuda = torch.device(device).type == "cuda"
        self._source = torch.Generator(device=device if is_cuda else "cpu")

    def exponential(self, step: int, size: int) -> Any:
        """So many numbers of the exponential distribution."""
        # Hashed: neighbouring seeds and steps must have nothing in common.
        told = hashlib.blake2b(b"%d/%d" % (self._seed, step), digest_size=8).digest()
        self._source.manual_seed(int.from_bytes(told, "little"))
        noise = torch.empty(size, device=self._source.device)
        return noise.exponential_(generator=self._source)


class TokenSampler:
    """A logits processor after which the highest score is the token chosen."""

    def __init__(
        self,
        requests: Sequence[Generate],
        prompts: Sequence[Sequence[int]],
        device: Any,
        done: Sequence[int],
        chances: Sequence[RowNoise] | None = None,
    ) -> None:
        """`done` is how many tokens each row has already, in its prompt.

        `chances` are of those rows that leave something to chance, in their order.
        """
        self._prompts = prompts
        self._device = device
        self._drawn = [i for i, r in enumerate(requests) if r.temperature > 0.0]
        drawn = [requests[i] for i in self._drawn]
        self._heat = self._column([r.temperature for r in drawn])
        self._share = self._column([r.top_p for r in drawn])
        self._best = self._column([float(r.top_k or 1 << 30) for r in drawn])
        self._penalty = self._column([r.repetition_penalty for r in requests])
        self._has_penalty = any(r.repetition_penalty != 1.0 for r in requests)
        self._is_cut = any(r.top_p < 1.0 or r.top_k for r in drawn)
        self._chance = chances or [RowNoise(r.seed, device) for r in drawn]
        self._steps = [done[i] for i in self._drawn]
        self._seen: Any = None

    @property
    def is_needed(self) -> bool:
        """Is it anything but the plain highest score?"""
        return bool(self._drawn) or self._has_penalty

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if self._has_penalty:
            scores = self._penalise(input_ids, scores)
        if self._drawn:
            scores = scores.clone()
            scores[self._drawn] = self._draw(scores[self._drawn])
        return scores

    def _column(self, values: Sequence[float]) -> Any:
        made = torch.tensor(values, dtype=torch.float32, device=self._device)
        return made[:, None]

    def _penalise(self, input_ids: Any, scores: Any) -> Any:
        """Tokens that were there get a lower score; padding was not there."""
        if self._seen is None:
            self._seen = torch.zeros_like(scores, dtype=torch.bool)
            for row, prompt in enumerate(self._prompts):
                self._seen[row, torch.tensor(prompt, device=scores.device)] = True
        else:
            self._seen.scatter_(1, input_ids[:, -1:], True)
        lower = torch.where(scores < 0, scores * self._penalty, scores / self._penalty)
        return torch.where(self._seen, lower, scores)

    def _draw(self, scores: Any) -> Any:
        scores = scores / self._heat
        if self._is_cut:
            scores = self._cut(scores)
        pairs = zip(self._chance, self._steps, strict=True)
        drawn = [chance.exponential(step, scores.shape[1]) for chance, step in pairs]
        noise = torch.stack(drawn).to(scores.device)
        self._steps = [step + 1 for step in self._steps]
        # The highest of p/e, with e exponential, falls on each token as often as p.
        picked = (torch.softmax(scores, dim=-1) / noise).argmax(dim=-1, keepdim=True)
        return torch.full_like(scores, _NEVER).scatter_(1, picked, 0.0)

    def _cut(self, scores: Any) -> Any:
        """Only the best `top_k`, and of those only what makes up `top_p`."""
        ordered, where = scores.sort(dim=-1, descending=True)
        rank = torch.arange(scores.shape[1], device=scores.device)[None, :]
        ordered = ordered.masked_fill(rank >= self._best, _NEVER)
        shares = torch.softmax(ordered, dim=-1)
        # The first token always stays: nothing comes before it.
        ordered = ordered.masked_fill(
            shares.cumsum(dim=-1) - shares >= self._share, _NEVER
        )
        return torch.full_like(scores, _NEVER).scatter_(1, where, ordered)

"""The rows of a batch that is being generated: each ends by itself.

A row ends with its model's end mark, with its own limit, with one of its stop words, or
because its task was cancelled; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from corral.worker.inference.call import RequestTask

Decode = Callable[[Sequence[int]], str]
_TAIL = 8
_BROKEN = "\ufffd"


class TokenText:
    """Text of tokens as they come. A token may be half a character, and many
    tokenizers spell a token by those before it: a few are kept to read from.
    """

    def __init__(self, decode: Decode, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._ids = list(prompt[-_TAIL:])
        self._from, self._read = 0, len(self._ids)
        self._before = decode(self._ids) if self._ids else ""

    def add(self, tokens: Sequence[int], *, is_last: bool = False) -> str:
        """What these tokens add to the text; nothing while a character is not whole."""
        self._ids += tokens
        now = self._decode(self._ids[self._from :])
        if len(now) <= len(self._before) or (now.endswith(_BROKEN) and not is_last):
            return ""
        piece = now[len(self._before) :]
        self._from, self._read = self._read, len(self._ids)
        self._before = self._decode(self._ids[self._from : self._read])
        return piece


class BatchRow:
    """One text on its way."""

    def __init__(
        self,
        task: RequestTask,
        spelling: TokenText,
        limit: int,
        ends: frozenset[int],
        stops: tuple[str, ...] = (),
        is_streamed: bool = False,
    ) -> None:
        self.tokens: list[int] = []
        self.reason: str | None = None
        """Why it ended: stop, length or cancelled."""
        self._task = task
        self._spelling = spelling
        self._limit = limit
        self._ends = ends
        self._stops = stops
        self._is_streamed = is_streamed
        self._text: list[str] = []
        self._held = ""
        self._spelled = 0
        self._is_stopped = False

    def go_on(self, tokens: Sequence[int]) -> None:
        """Take what an attempt before this one has chosen already."""
        for token in tokens:
            self.take(token)

    def take(self, token: int) -> bool:
        """Take the next token; true when the row has ended."""
        if self.reason is not None:
            return True
        if token in self._ends:
            return self._end("stop")
        self.tokens.append(token)
        if (self._is_streamed or self._stops) and self._spell():
            return self._end("stop")
        if len(self.tokens) >= self._limit:
            return self._end("length")
        if self._task.is_cancelled:
            return self._end("cancelled")
        return False

    def cancel(self) -> None:
        """End it between two tokens."""
        if self.reason is None:
            self._end("cancelled")

    @property
    def text(self) -> str:
        """All of it, once the row has ended."""
        return "".join(self._text)

    def _end(self, reason: str) -> bool:
        self.reason = reason
        # A stop word has cut the rest; else what was held back is text after all.
        if not self._is_stopped and self._spell(is_last=True):
            self.reason = "stop"
        if not self._is_stopped:
            self._pass_on(self._held)
        return True

    def _spell(self, *, is_last: bool = False) -> bool:
        """Spell what is new; true when a stop word has come up."""
        fresh = self.tokens[self._spelled :]
        piece = self._spelling.add(fresh, is_last=is_last)
        self._spelled = len(self.tokens)
        self._held += piece
        found = [at for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            self._pass_on(self._held[: min(found)])
            self._is_stopped = True
            return True
        keep = self._open_end()
        self._pass_on(self._held[: len(self._held) - keep])
        self._held = self._held[len(self._held) - keep :]
        return False

    def _open_end(self) -> int:
        """How much at the end may be the beginning of a stop word."""
        most = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(most, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0

    def _pass_on(self, text: str) -> None:
        if text:
            self._text.append(text)
            # Cancelled is not ended: what was held back may come out as other text
            # when another attempt goes on from here.
            if self._is_streamed and self.reason != "cancelled":
                self._task.say(text, self.tokens)


class BatchRows:
    """Tells transformers after each step which rows have ended."""

    def __init__(self, rows: Sequence[BatchRow], device: Any) -> None:
        self._rows = rows
        self._ended = [False] * len(rows)
        self._mask = torch.zeros(len(rows), dtype=torch.bool, device=device)

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        tokens = input_ids[:, -1].tolist()
        ended = [row.take(t) for row, t in zip(self._rows, tokens, strict=True)]
        if ended != self._ended:
            self._ended = ended
            self._mask = torch.tensor(ended, device=input_ids.device)
        return self._mask

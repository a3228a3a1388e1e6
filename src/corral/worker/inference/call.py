"""One request on its way through a model: what it asks, and whom to tell meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from corral.worker.base import Context
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.request import Request


@dataclass(frozen=True, slots=True)
class SentText:
    """What attempts before this one have sent of a text.

    `tokens` are those that were chosen for it, where all of them are known: text alone
    may be read as other tokens than those it was written with.
    """

    text: str = ""
    tokens: tuple[int, ...] | None = None


def sent_in(pieces: Sequence[Any]) -> SentText:
    """What the pieces that were emitted make up."""
    told = [p if isinstance(p, dict) else {"text": p} for p in pieces]
    text = "".join(str(piece.get("text", "")) for piece in told)
    if not all(isinstance(piece.get("tokens"), list) for piece in told):
        return SentText(text)
    return SentText(text, tuple(int(t) for piece in told for t in piece["tokens"]))


class RequestTask:
    """The task behind a request: asks it to stop, and takes what is sent early.

    A batch that is run again says the same again: nothing is sent twice.
    """

    __slots__ = ("_at", "_context", "_sent", "_told")

    def __init__(
        self, context: Context | None = None, sent: SentText | None = None
    ) -> None:
        self._context = context
        self._at = 0
        self._sent = len(sent.text) if sent else 0
        self._told = len(sent.tokens or ()) if sent else 0

    @property
    def is_cancelled(self) -> bool:
        return self._context is not None and self._context.cancelled

    def begin(self, at: int = 0) -> None:
        """What is said next comes after so many letters of the text."""
        self._at = at

    def say(self, text: str, tokens: Sequence[int]) -> None:
        """Send a piece of text ahead of the answer; `tokens` are all chosen so far."""
        fresh = text[max(self._sent - self._at, 0) :]
        self._at += len(text)
        self._sent = max(self._sent, self._at)
        if fresh and self._context is not None:
            news = list(tokens[self._told :])
            self._context.emit({"text": fresh, "tokens": news})
            self._told = max(self._told, len(tokens))

    def progress(self, fraction: float) -> None:
        if self._context is not None:
            self._context.progress(fraction)


@dataclass(slots=True)
class ModelCall:
    """The answer goes on from what was `sent`. `made` is the backend's own: what it has
    made of the request already.
    """

    request: Request
    task: RequestTask = field(default_factory=RequestTask)
    sent: SentText = field(default_factory=SentText)
    made: Any = None


class Loaded(Protocol):
    """A model in memory. One thread uses it at a time."""

    kind: ModelKind

    def measure(self, call: ModelCall) -> int:
        """What the call costs at most, in tokens or the like.

        Raises:
            Refused: this model cannot do it: the prompt is too long.
        """

    def likeness(self, call: ModelCall) -> object:
        """Calls that are equal in this may share a batch; None shares with nobody."""

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        """The answers, in order; text that is streamed goes to each call's voice."""

    def weights_mb(self) -> float:
        """What its weights take, on whatever device."""

    def unload(self) -> None:
        """Let go of everything, so that it can be freed."""

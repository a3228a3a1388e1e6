"""One request on its way through a model: what it asks, and whom to tell meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from corral.worker.base import Context
from corral.worker.inference.kind import Kind
from corral.worker.inference.place import ModelRef
from corral.worker.inference.request import Request


class Voice:
    """The task behind a request: asks it to stop, and takes what is sent early.

    A batch that is run again says the same again: nothing is sent twice.
    """

    __slots__ = ("_at", "_context", "_sent")

    def __init__(self, context: Context | None = None) -> None:
        self._context = context
        self._at = self._sent = 0

    @property
    def is_cancelled(self) -> bool:
        return self._context is not None and self._context.cancelled

    def begin(self) -> None:
        """What is said next is the beginning of the text."""
        self._at = 0

    def say(self, text: str) -> None:
        """Send a piece of text ahead of the answer."""
        fresh = text[max(self._sent - self._at, 0) :]
        self._at += len(text)
        if fresh and self._context is not None:
            self._context.emit({"text": fresh})
        self._sent = max(self._sent, self._at)

    def progress(self, fraction: float) -> None:
        if self._context is not None:
            self._context.progress(fraction)


@dataclass(slots=True)
class Call:
    """`sent` is text that an attempt before this one has sent: the answer goes on from
    there. `made` is the backend's own: what it has made of the request already.
    """

    request: Request
    voice: Voice = field(default_factory=Voice)
    sent: str = ""
    made: Any = None


class Loaded(Protocol):
    """A model in memory. One thread uses it at a time."""

    kind: Kind

    def measure(self, call: Call) -> int:
        """What the call costs at most, in tokens or the like.

        Raises:
            Refused: this model cannot do it: the prompt is too long.
        """

    def likeness(self, call: Call) -> object:
        """Calls that are equal in this may share a batch; None shares with nobody."""

    def run(self, calls: list[Call]) -> list[dict[str, Any]]:
        """The answers, in order; text that is streamed goes to each call's voice."""

    def weights_mb(self) -> float:
        """What its weights take, on whatever device."""

    def unload(self) -> None:
        """Let go of everything, so that it can be freed."""


class Backend(Protocol):
    """Loads models of one kind with one library."""

    def __call__(self, ref: ModelRef, plan: Any) -> Loaded:
        """Load it where the plan says.

        Raises:
            Unusable: its files are broken, or not for this library.
        """

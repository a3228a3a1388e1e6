"""What may be wrong with a request or a model, each with a kind and one line to show.

What is wrong with a request is final. What is wrong with a model, or with memory, may
be right elsewhere.
"""

from __future__ import annotations

from corral.core.tasks.outcome import OUT_OF_MEMORY
from corral.worker.base import Failure

BAD_INPUT = "bad_input"
REMOTE_CODE = "remote_code"

_SIGNS = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "failed to allocate memory",
    "bad allocation",
)


class RequestRefused(Failure):
    """The request cannot be done as it stands, here or anywhere."""

    def __init__(self, message: str, kind: str = BAD_INPUT) -> None:
        super().__init__(one_line(message), kind=kind, is_final=True)


class Unusable(Failure):
    """The model cannot be loaded; `kind` says why.

    It is unknown_model, corrupt_model, unsupported_model, remote_code or
    missing_library. Another node may have better files or libraries; code of a model
    runs on none that nobody has allowed.
    """

    def __init__(self, message: str, kind: str) -> None:
        is_final = kind == REMOTE_CODE
        super().__init__(one_line(message), kind=kind, is_final=is_final)


class ModelOutOfMemory(Failure):
    """No memory for it here, not even alone: the manager tries it where there is."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message), kind=OUT_OF_MEMORY)


def is_out_of_memory(error: BaseException) -> bool:
    """Did an allocation fail? Libraries say so in several ways."""
    if isinstance(error, MemoryError):
        return True
    if type(error).__name__ in ("OutOfMemoryError", "AcceleratorError"):
        return "out of memory" in str(error).lower()
    said = str(error).lower() if isinstance(error, RuntimeError) else ""
    return any(sign in said for sign in _SIGNS)


def one_line(text: object, limit: int = 500) -> str:
    """The words of a message without its line ends, cut where it goes on and on."""
    words = " ".join(str(text).split())
    return words if len(words) <= limit else words[: limit - 3] + "..."

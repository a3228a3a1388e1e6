"""What a server's errors mean for the task that met them."""

from __future__ import annotations

from corral.worker.base import Failure, Lost
from corral.worker.inference.errors import ModelOutOfMemory, RequestRefused, one_line
from corral.worker.server.http_call import Answered, Gone

SERVER_FAILED = "server_failed"
_BAD = (400, 413, 422)
_UNKNOWN = (404, 405, 501)
_NOT_OURS = (401, 403)


class NotServed(Failure):
    """A server does not come up, or does not stay up."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message, 1500), kind=SERVER_FAILED)


def failure_of(error: Answered | Gone, model: str) -> Failure:
    """The task's failure: final for what is wrong with the request, a loss for what
    is wrong with the server, which is tried again.
    """
    said = one_line(str(error), 400)
    if isinstance(error, Gone):
        return Lost(f"the server of model {model} went away: {said}")
    if error.status in _BAD or _is_too_long(said):
        return RequestRefused(f"model {model}: {said}")
    if error.status in _UNKNOWN:
        text = f"the server of model {model} does not do this: {said}"
        return RequestRefused(text, "unsupported_type")
    if error.status in _NOT_OURS:
        text = f"the server of model {model} wants another key: {said}"
        return Failure(text, kind=SERVER_FAILED)
    if "out of memory" in said.lower():
        return ModelOutOfMemory(f"the server of model {model}: {said}")
    return Lost(f"the server of model {model} answered {error.status}: {said}")


def start_failure(model: str, end: str, last_words: str) -> Failure:
    """Why a server did not come up, with what it said last."""
    text = f"the server of model {model} {end}"
    if last_words:
        text += f"; its last words: {last_words}"
    if "out of memory" in last_words.lower():
        return ModelOutOfMemory(text)
    return NotServed(text)


def _is_too_long(said: str) -> bool:
    """Some answer with a status of their own to a prompt that has no room."""
    words = said.lower()
    return "context" in words and any(w in words for w in ("length", "size", "window"))

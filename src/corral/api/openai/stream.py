"""A completion as it is made: events of the OpenAI-compatible face."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from corral.api.errors import fault, status_of
from corral.api.openai.answer import GeneratedText, Transcript, said_by, usage
from corral.errors import CorralError, Unavailable
from corral.manager.output.stream import OutputPage, OutputReader
from corral.manager.tasks import Tasks

HEARTBEAT_S = 15.0
_encode = msgspec.json.Encoder().encode


class CompletionEvents:
    """Writes the events of one completion. `is_chat` says which of the two it is."""

    def __init__(
        self, task_id: str, at: int, name: str, *, is_chat: bool, wants_usage: bool
    ) -> None:
        kind = "chatcmpl" if is_chat else "cmpl"
        what = "chat.completion.chunk" if is_chat else "text_completion"
        self._head: dict[str, Any] = {
            "id": f"{kind}-{task_id}",
            "object": what,
            "created": at,
            "model": name,
        }
        self._is_chat = is_chat
        self._wants_usage = wants_usage
        self._transcript = Transcript()

    def begin(self) -> bytes:
        if not self._is_chat:
            return b""
        return self._choice({"role": "assistant", "content": ""}, None)

    def go_on(self, page: OutputPage) -> bytes:
        text = self._transcript.take(page)
        return self._text(text) if text else b""

    def end(self, said: GeneratedText) -> bytes:
        """What is left of it, why it ended, and what it took."""
        rest = self._transcript.rest(said.text)
        out = self._text(rest) if rest else b""
        out += self._choice({} if self._is_chat else {"text": ""}, said.reason)
        if self._wants_usage:
            out += _event({**self._head, "choices": [], "usage": usage([said])})
        return out + b"data: [DONE]\n\n"

    def _text(self, text: str) -> bytes:
        return self._choice({"content" if self._is_chat else "text": text}, None)

    def _choice(self, told: dict[str, Any], reason: str | None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "logprobs": None}
        if self._is_chat:
            choice["delta"] = told
        else:
            choice |= told
        event = {**self._head, "choices": [choice]}
        if self._wants_usage:
            event["usage"] = None
        return _event(event)


async def events(
    tasks: Tasks,
    reader: OutputReader,
    task_id: str,
    telling: CompletionEvents,
    page: OutputPage,
) -> AsyncIterator[bytes]:
    """From the first page on; who goes away before the end ends the work."""
    try:
        head = telling.begin()
        while page.ended is None:
            yield head + telling.go_on(page) or b": still here\n\n"
            head = b""
            if reader.is_closing:
                yield _fault(Unavailable("the manager stops; ask again"))
                return
            page = await reader.next(HEARTBEAT_S)
        try:
            yield head + telling.end(said_by(page.ended))
        except CorralError as error:
            yield _fault(error)
    except (asyncio.CancelledError, GeneratorExit):
        if not reader.is_closing:
            tasks.give_up(task_id)
        raise


def _fault(error: CorralError) -> bytes:
    """The status has been sent: clients look for this among the events."""
    told = fault(status_of(error), error.code, error.message, error.details)
    return _event(told)


def _event(value: Any) -> bytes:
    return b"data: %b\n\n" % _encode(value)

"""Requests in the words of the OpenAI API, and answers in ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.worker.base import Context, Failure
from corral.worker.inference.call import sent_in
from corral.worker.inference.request import Embed, Generate
from corral.worker.server.balance import ReplicaGroup, ServerRequest
from corral.worker.server.errors import failure_of
from corral.worker.server.http_call import Answered, Exchange, Gone
from corral.worker.server.program import Dialect

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"


@dataclass(slots=True)
class StreamedText:
    """A text on its way. `sent` are the pieces of an attempt before this one, which
    the answer begins with; about a token each.
    """

    asked: Generate
    sent: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """How many tokens may follow what was sent."""
        return self.asked.max_tokens - len(self.sent)

    def take(self, event: Mapping[str, Any]) -> str:
        """The text that an event of the stream adds."""
        self.usage = event.get("usage") or self.usage
        choices = event.get("choices") or [{}]
        choice = choices[0]
        self.reason = choice.get("finish_reason") or self.reason
        delta = choice.get("delta") or {}
        text = str(choice.get("text") or delta.get("content") or "")
        if text:
            self.fresh.append(text)
        return text

    def answer(self, reason: str | None = None) -> dict[str, Any]:
        before = len(self.sent)
        asked = int(self.usage.get("prompt_tokens") or before)
        made = int(self.usage.get("completion_tokens") or len(self.fresh))
        why = reason or self.reason
        return {
            "text": "".join(self.sent + self.fresh),
            "finish_reason": why if why in ("length", "cancelled") else "stop",
            "prompt_tokens": max(asked - before, 0),
            "tokens": made + before,
        }


def generate(fleet: ReplicaGroup, asked: Generate, context: Context) -> dict[str, Any]:
    """Write the text; with `stream`, each piece is emitted as it comes.

    An attempt that follows a lost one goes on from what that has emitted, where the
    server can; else it begins again.
    """
    dialect = fleet.spec.dialect
    writing = StreamedText(asked)
    if asked.stream and (asked.prompt is not None or dialect.resume != "again"):
        writing.sent = [sent_in([piece]).text for piece in context.emitted]
    if writing.left <= 0:
        return writing.answer("length")
    path = COMPLETIONS if asked.messages is None else CHAT
    try:
        for event in _events(fleet, path, writing, context):
            text = writing.take(event)
            if text and asked.stream:
                context.emit({"text": text})
    except (Answered, Gone) as error:
        if context.cancelled:
            return writing.answer("cancelled")
        raise failure_of(error, fleet.spec.name) from None
    return writing.answer()


def _events(
    fleet: ReplicaGroup, path: str, writing: StreamedText, context: Context
) -> Iterator[dict[str, Any]]:
    dialect = fleet.spec.dialect
    ask = ServerRequest(
        path, lambda model: _body(model, writing, dialect), _wanted(context)
    )
    while True:
        try:
            with fleet.exchange(ask) as exchange:
                _end_with(context, exchange)
                yield from exchange.events()
                if writing.reason is None:
                    raise Gone("its answer ended in the middle", was_asked=True)
                return
        except Gone as error:
            # What never reached a server may be asked of the next.
            if error.was_asked or context.cancelled:
                raise


def embed(fleet: ReplicaGroup, asked: Embed, context: Context) -> dict[str, Any]:
    """Vectors of texts."""
    dialect = fleet.spec.dialect
    more = (
        {"truncate_prompt_tokens": -1} if asked.truncate and dialect.truncates else {}
    )

    def body(model: str) -> dict[str, Any]:
        told = {"model": model, "input": asked.texts, "encoding_format": "float"}
        return {**told, **more}

    ask = ServerRequest(EMBEDDINGS, body, _wanted(context))
    while True:
        try:
            with fleet.exchange(ask) as exchange:
                _end_with(context, exchange)
                return _vectors(exchange.whole(), asked)
        except Gone as error:
            if context.cancelled:
                raise Failure("cancelled", kind="cancelled") from None
            if error.was_asked:
                raise failure_of(error, fleet.spec.name) from None
        except Answered as error:
            raise failure_of(error, fleet.spec.name) from None


def _end_with(context: Context, exchange: Exchange) -> None:
    """Hang up when the task is to stop: the server then stops as well."""
    context.on_stop(lambda reason: exchange.abort())


def _wanted(context: Context) -> Any:
    return lambda: not context.cancelled


def _body(model: str, writing: StreamedText, dialect: Dialect) -> dict[str, Any]:
    asked, sent = writing.asked, "".join(writing.sent)
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": writing.left,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if asked.stops:
        body["stop"] = list(asked.stops)
    if asked.seed is not None:
        body["seed"] = asked.seed
    if asked.top_k or dialect.sends_top_k:
        body["top_k"] = asked.top_k or -1
    if dialect.sends_min_p:
        body["min_p"] = 0.0
    if asked.repetition_penalty != 1.0:
        body[dialect.repetition] = asked.repetition_penalty
    if asked.messages is None:
        return {**body, "prompt": (asked.prompt or "") + sent}
    turns = [{"role": m.role, "content": m.content} for m in asked.messages]
    if sent:
        turns.append({"role": "assistant", "content": sent})
        if dialect.resume == "continue_final_message":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    return {**body, "messages": turns}


def _vectors(told: Any, asked: Embed) -> dict[str, Any]:
    try:
        rows = sorted(told["data"], key=lambda row: int(row.get("index", 0)))
        vectors = [[float(x) for x in row["embedding"]] for row in rows]
        tokens = int((told.get("usage") or {}).get("prompt_tokens") or 0)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Gone("its answer has no embeddings", was_asked=True) from None
    if len(vectors) != len(asked.texts):
        raise Gone("its answer has not one vector for each text", was_asked=True)
    if asked.normalize:
        vectors = [_unit(vector) for vector in vectors]
    return {"embeddings": vectors, "dimensions": len(vectors[0]), "tokens": tokens}


def _unit(vector: list[float]) -> list[float]:
    length = max(math.sqrt(sum(x * x for x in vector)), 1e-12)
    return [x / length for x in vector]

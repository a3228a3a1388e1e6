"""From a request of the OpenAI-compatible face to the payloads of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from corral.api.openai.shapes import (
    ChatIn,
    CompletionIn,
    EmbeddingsIn,
    MessageIn,
    Sampling,
)
from corral.errors import InvalidField

GENERATE = "generate"
EMBED = "embed"
CHAT_TOKENS = 1024
TEXT_TOKENS = 16
MAX_CHOICES = 64
_SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What is asked of one model: one task for each payload.

    `is_streamed` and `wants_usage` are about how it is told.
    """

    model: str
    job_type: str
    payloads: tuple[dict[str, Any], ...]
    is_streamed: bool = False
    wants_usage: bool = False


def chat_ask(told: ChatIn) -> ModelRequest:
    """Raises InvalidField for what no worker here could do."""
    _refuse(told, "tools", "functions", "top_logprobs")
    form = (told.response_format or {}).get("type", "text")
    if form != "text":
        raise _unsupported("response_format")
    said = [{"role": m.role, "content": _content(m)} for m in told.messages]
    limit = told.max_completion_tokens or told.max_tokens or CHAT_TOKENS
    return _ask(told, [{"messages": said}], limit)


def completion_ask(told: CompletionIn) -> ModelRequest:
    _refuse(told, "suffix", "echo")
    if told.best_of not in (None, 1):
        raise _unsupported("best_of")
    prompts = _texts(told.prompt, "prompt")
    return _ask(told, [{"prompt": p} for p in prompts], told.max_tokens or TEXT_TOKENS)


def embeddings_ask(told: EmbeddingsIn) -> ModelRequest:
    return ModelRequest(told.model, EMBED, ({"text": _texts(told.input, "input")},))


def _ask(told: Sampling, starts: list[dict[str, Any]], limit: int) -> ModelRequest:
    _refuse(told, "logit_bias", "logprobs", "presence_penalty", "frequency_penalty")
    count = told.n or 1
    is_streamed = bool(told.stream)
    if is_streamed and len(starts) * count > 1:
        raise InvalidField("only one choice can be streamed at a time", field="n")
    if len(starts) * count > MAX_CHOICES:
        raise InvalidField(f"at most {MAX_CHOICES} choices in one request", field="n")
    how = _sampling(told, limit)
    if is_streamed:
        how["stream"] = True
    payloads = tuple(
        {**start, **how, **_seed(told.seed, i)}
        for start in starts
        for i in range(count)
    )
    options = told.stream_options
    wants_usage = is_streamed and options is not None and options.include_usage
    return ModelRequest(told.model, GENERATE, payloads, is_streamed, wants_usage)


def _sampling(told: Sampling, limit: int) -> dict[str, Any]:
    # As everywhere else that speaks this way: warm, unless told otherwise.
    warmth = 1.0 if told.temperature is None else told.temperature
    how: dict[str, Any] = {"max_tokens": limit, "temperature": warmth}
    for name in ("top_p", "top_k", "repetition_penalty", "stop"):
        if (value := getattr(told, name)) is not None:
            how[name] = value
    return how


def _seed(seed: int | None, number: int) -> dict[str, int]:
    """Choices of one request differ, and each is the same again with the same seed."""
    return {} if seed is None else {"seed": (seed + number) % _SEEDS}


def _content(message: MessageIn) -> str:
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    if any(part.type != "text" or part.text is None for part in message.content):
        raise InvalidField("only parts of type text are supported", field="messages")
    return "".join(part.text or "" for part in message.content)


def _texts(told: str | list[Any], field: str) -> list[str]:
    if isinstance(told, str):
        return [told]
    if not told or not all(isinstance(each, str) for each in told):
        raise InvalidField(f"{field} must be a text or a list of texts", field=field)
    return told


def _refuse(told: Any, *fields: str) -> None:
    """What would change the answer must not be ignored."""
    for field in fields:
        if getattr(told, field):
            raise _unsupported(field)


def _unsupported(field: str) -> InvalidField:
    return InvalidField(f"{field} is not supported; leave it out", field=field)

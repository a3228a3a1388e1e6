"""Shapes of the OpenAI-compatible face: requests, answers, pieces of a stream.

Fields that a request may have there and that change nothing here are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Warmth = Annotated[float, Meta(ge=0.0, le=2.0)]
Share = Annotated[float, Meta(gt=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Choices = Annotated[int, Meta(ge=1, le=16)]
Word = Annotated[str, Meta(min_length=1)]
Words = Annotated[list[Word], Meta(max_length=16)]


class Part(Struct):
    type: str
    text: str | None = None


class MessageIn(Struct):
    role: str
    content: str | list[Part] | None = None


class StreamOptions(Struct):
    include_usage: bool = False


class Sampling(Struct, kw_only=True):
    """What both kinds of completion may ask for."""

    model: str
    max_tokens: Count | None = None
    temperature: Warmth | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    n: Choices | None = None
    stop: Word | Words | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Any] | None = None
    logprobs: Any = None


class ChatIn(Sampling, kw_only=True):
    messages: Annotated[list[MessageIn], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    top_logprobs: int | None = None


class CompletionIn(Sampling, kw_only=True):
    prompt: str | list[Any]
    suffix: str | None = None
    echo: bool | None = None
    best_of: int | None = None


class EmbeddingsIn(Struct, kw_only=True):
    model: str
    input: str | list[Any]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None


class OpenAIModelOut(Struct):
    id: str
    created: int
    object: str = "model"
    owned_by: str = "corral"


class OpenAIModelListOut(Struct):
    data: list[OpenAIModelOut]
    object: str = "list"


class Usage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class MessageOut(Struct):
    content: str
    role: str = "assistant"
    refusal: None = None


class ChatChoice(Struct):
    index: int
    message: MessageOut
    finish_reason: str
    logprobs: None = None


class ChatOut(Struct):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: str = "chat.completion"


class TextChoice(Struct):
    index: int
    text: str
    finish_reason: str
    logprobs: None = None


class CompletionOut(ChatOut):
    choices: list[TextChoice]  # type: ignore[assignment]
    object: str = "text_completion"


class EmbeddingOut(Struct):
    """`embedding` is numbers, or base64 of them as 4-byte floats."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingsUsage(Struct):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsOut(Struct):
    data: list[EmbeddingOut]
    model: str
    usage: EmbeddingsUsage
    object: str = "list"

"""What is asked of a model, checked field by field before any model sees it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from corral.worker.inference.errors import RequestRefused
from corral.worker.inference.kind import ModelKind, RequestedKind

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Warmth = Annotated[float, Meta(ge=0.0, le=5.0)]
Share = Annotated[float, Meta(gt=0.0, le=1.0)]
Penalty = Annotated[float, Meta(gt=0.0, le=10.0)]
Seed = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Side = Annotated[int, Meta(ge=8, le=8192, multiple_of=8)]
Factor = Annotated[float, Meta(ge=0.25, le=4.0)]
Texts = Annotated[list[str], Meta(min_length=1, max_length=2048)]
Some = Annotated[str, Meta(min_length=1)]
# Their name of a field, and ours.
_FOREIGN_FIELDS: dict[ModelKind, dict[str, str]] = {
    ModelKind.GENERATE: {"text": "prompt", "prompt": "prompt"},
    ModelKind.CAPTION: {"image_data": "image", "image": "image"},
    ModelKind.SPEAK: {"voice_id": "voice"},
    ModelKind.DRAW: {"num_inference_steps": "steps", "guidance_scale": "guidance"},
}
_FOREIGN_DEFAULTS: dict[ModelKind, dict[str, Any]] = {
    ModelKind.GENERATE: {
        "max_tokens": 50,
        "temperature": 0.7,
        "top_p": 0.9,
        "repetition_penalty": 1.1,
    },
}
_MODEL_FIELDS = ("model", "model_name")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")


class Message(Struct):
    role: str
    content: str


class Generate(Struct, kw_only=True, forbid_unknown_fields=True):
    """Text that goes on from `prompt`, or answers `messages`.

    With `stream` the text is also sent piece by piece.
    """

    prompt: str | None = None
    messages: list[Message] | None = None
    max_tokens: Count = 128
    temperature: Warmth = 0.0
    top_p: Share = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    repetition_penalty: Penalty = 1.0
    stop: Some | list[Some] = []
    seed: Seed | None = None
    stream: bool = False

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class Embed(Struct, kw_only=True, forbid_unknown_fields=True):
    """`truncate` cuts texts that are too long for the model, instead of refusing."""

    text: str | Texts
    normalize: bool = True
    truncate: bool = False

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text


class Classify(Struct, kw_only=True, forbid_unknown_fields=True):
    text: str | Texts
    top_k: Annotated[int, Meta(ge=1)] | None = None
    truncate: bool = False

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text


class Caption(Struct, kw_only=True, forbid_unknown_fields=True):
    """`image` is base64 of a PNG, JPEG or the like; a data URL will do."""

    image: Some
    prompt: str = ""
    max_tokens: Count = 100


class Speak(Struct, kw_only=True, forbid_unknown_fields=True):
    text: Some
    voice: str | int | None = None
    speed: Factor = 1.0
    pitch: Factor = 1.0
    seed: Seed | None = None


class Draw(Struct, kw_only=True, forbid_unknown_fields=True):
    prompt: Some
    negative_prompt: str = ""
    width: Side | None = None
    height: Side | None = None
    steps: Annotated[int, Meta(ge=1, le=1000)] = 20
    guidance: Annotated[float, Meta(ge=0.0, le=100.0)] = 7.5
    seed: Seed | None = None


Request = Generate | Embed | Classify | Caption | Speak | Draw

_SHAPES: dict[ModelKind, type[Struct]] = {
    ModelKind.GENERATE: Generate,
    ModelKind.EMBED: Embed,
    ModelKind.CLASSIFY: Classify,
    ModelKind.CAPTION: Caption,
    ModelKind.SPEAK: Speak,
    ModelKind.DRAW: Draw,
}


def read_request(ask: RequestedKind, payload: Any) -> Request:
    """The request in a payload.

    Raises:
        Refused: what is missing or out of its bounds, by the name of the field.
    """
    if not isinstance(payload, dict):
        raise RequestRefused(
            f'{ask.kind} needs a payload like {{"{_main_field(ask)}": ...}}'
        )
    told = {str(k): v for k, v in payload.items() if k not in _MODEL_FIELDS}
    if ask.is_foreign:
        told = _translate(ask.kind, told)
    try:
        request = msgspec.convert(told, _SHAPES[ask.kind])
    except msgspec.ValidationError as error:
        raise RequestRefused(_say(str(error), ask)) from None
    if isinstance(request, Generate):
        _check_prompt(request)
    assert isinstance(request, Request)
    return request


def model_named(payload: Any) -> str | None:
    """The model that a payload itself names."""
    told = payload if isinstance(payload, dict) else {}
    return next((str(told[f]) for f in _MODEL_FIELDS if told.get(f)), None)


def image_bytes(text: str) -> bytes:
    """The bytes of an image in base64."""
    body = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise RequestRefused("image: it is not base64") from None


def _check_prompt(request: Generate) -> None:
    if (request.prompt is None) == (request.messages is None):
        raise RequestRefused("generate needs either prompt or messages")
    if not request.prompt and not request.messages:
        raise RequestRefused("prompt: it is empty")


def _translate(kind: ModelKind, told: dict[str, Any]) -> dict[str, Any]:
    """Fields of another system under our names; those we do not know are left out."""
    names = _FOREIGN_FIELDS.get(kind, {})
    known = {field.encode_name for field in msgspec.structs.fields(_SHAPES[kind])}
    given = {names.get(k, k): v for k, v in told.items() if v is not None}
    kept = {k: v for k, v in given.items() if k in known}
    return _FOREIGN_DEFAULTS.get(kind, {}) | kept


def _main_field(ask: RequestedKind) -> str:
    if ask.is_foreign:
        names = _FOREIGN_FIELDS.get(ask.kind, {})
        return (
            next(iter(names))
            if ask.kind in (ModelKind.GENERATE, ModelKind.CAPTION)
            else ("text" if ask.kind is ModelKind.SPEAK else "prompt")
        )
    return {
        ModelKind.GENERATE: "prompt",
        ModelKind.DRAW: "prompt",
        ModelKind.CAPTION: "image",
    }.get(ask.kind, "text")


def _say(error: str, ask: RequestedKind) -> str:
    """The checker's words with the field in front, as its sender calls it."""
    found = _PLACE.search(error)
    if found is None or not found[1]:
        return error.replace("Object", str(ask.kind), 1)
    field, inner = re.match(r"([^.\[]*)(.*)", found[1]).groups()  # type: ignore[union-attr]
    if ask.is_foreign:
        theirs = {v: k for k, v in reversed(_FOREIGN_FIELDS.get(ask.kind, {}).items())}
        field = theirs.get(field, field)
    return f"{field}{inner}: {error[: found.start()]}"


# Answers under the names that users of other systems know, in their envelope.


def foreign_answer(
    kind: ModelKind,
    request: Request,
    answer: Mapping[str, Any],
    took_s: float,
    model: str,
    payload: Mapping[str, Any],
    system: Mapping[str, Any],
) -> dict[str, Any]:
    """`{result, metadata}`, as those tasks have always answered.

    Large inputs are not repeated in `params`.
    """
    params = {k: v for k, v in payload.items() if k not in ("image_data", "image")}
    return {
        "result": _result(kind, request, answer, took_s),
        "metadata": {
            "model_name": model,
            "execution_time": took_s,
            "params": params,
            "system_info": dict(system),
        },
    }


def _result(
    kind: ModelKind, request: Request, answer: Mapping[str, Any], took_s: float
) -> dict[str, Any]:
    if isinstance(request, Generate):
        text, said = str(answer["text"]), request.prompt or ""
        return {
            "generated_text": text,
            "input_text": said,
            "full_response": said + text,
            "tokens_generated": answer["tokens"],
            "processing_time": took_s,
        }
    if isinstance(request, Draw):
        return {
            **answer,
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "num_inference_steps": request.steps,
            "guidance_scale": request.guidance,
        }
    if isinstance(request, Speak | Caption):
        return dict(answer)
    return {str(kind): dict(answer)}

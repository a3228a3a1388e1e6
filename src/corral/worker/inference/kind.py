"""What can be asked of models, and under which names of job types.

Every kind has one plain name. The other names are those that users of other systems
have in their programs; they take the fields and give the answers known there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ModelKind(StrEnum):
    """What a model does; the value is the plain name of its job type."""

    GENERATE = "generate"
    EMBED = "embed"
    CLASSIFY = "classify"
    CAPTION = "caption"
    SPEAK = "speak"
    DRAW = "draw"


@dataclass(frozen=True, slots=True)
class RequestedKind:
    """A kind, and whether it was asked for under a name of another system."""

    kind: ModelKind
    is_foreign: bool = False


HEALTH = "health_check"
_CELERY = "app.tasks."
_PLAIN = {kind.value: kind for kind in ModelKind}
_FOREIGN = {
    "run_llm_inference": ModelKind.GENERATE,
    "llm": ModelKind.GENERATE,
    "text_generation": ModelKind.GENERATE,
    "run_sd_inference": ModelKind.DRAW,
    "stable_diffusion": ModelKind.DRAW,
    "image_generation": ModelKind.DRAW,
    "run_tts_inference": ModelKind.SPEAK,
    "tts": ModelKind.SPEAK,
    "run_image_to_text_inference": ModelKind.CAPTION,
    "image_to_text": ModelKind.CAPTION,
}
# How a model's definition may name its type, beside the plain names.
_MODEL_TYPES = {
    "llm": ModelKind.GENERATE,
    "embedding": ModelKind.EMBED,
    "classifier": ModelKind.CLASSIFY,
    "vision": ModelKind.CAPTION,
    "tts": ModelKind.SPEAK,
    "diffusion": ModelKind.DRAW,
}


def ask_of(job_type: str) -> RequestedKind | None:
    """What a job type asks for; None where its name says nothing."""
    name = job_type.removeprefix(_CELERY)
    if name in _FOREIGN:
        return RequestedKind(_FOREIGN[name], is_foreign=True)
    return RequestedKind(_PLAIN[name]) if name in _PLAIN else None


def is_health_check(job_type: str) -> bool:
    return job_type.removeprefix(_CELERY) == HEALTH


def kind_named(text: str) -> ModelKind | None:
    """The kind that a model's definition names."""
    return _PLAIN.get(text) or _MODEL_TYPES.get(text)

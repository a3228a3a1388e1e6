"""What a model does, by the files beside its weights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

CONFIG: Final = "config.json"
PIPELINE: Final = "model_index.json"
UNKNOWN: Final = "other"
_ENDINGS = {
    "ForCausalLM": "llm",
    "LMHeadModel": "llm",
    "ForSequenceClassification": "classifier",
    "ForTextToSpeech": "tts",
    "VitsModel": "tts",
    "BlipForConditionalGeneration": "vision",
    "ForImageTextToText": "vision",
    "VisionEncoderDecoderModel": "vision",
    "ForVision2Seq": "vision",
}


def type_of_classes(names: Iterable[str]) -> str:
    """The type of a model whose configuration names these classes."""
    known = list(names)
    for ending, word in _ENDINGS.items():
        if any(name.endswith(ending) for name in known):
            return word
    return UNKNOWN


def type_of_files(names: Iterable[str], config: bytes | None) -> str:
    """The type of a model with these files; `config` is what its configuration has."""
    if PIPELINE in names:
        return "diffusion"
    try:
        told = json.loads(config or b"{}")
    except ValueError:
        return UNKNOWN
    classes = told.get("architectures") if isinstance(told, dict) else None
    return type_of_classes(map(str, classes)) if isinstance(classes, list) else UNKNOWN

"""Types of models are read from their configurations."""

from __future__ import annotations

import json

import pytest

from corral.core.models.architecture import type_of_files


def config(*names: str) -> bytes:
    return json.dumps({"architectures": names}).encode()


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [
        ("LlamaForCausalLM", "llm"),
        ("GPT2LMHeadModel", "llm"),
        ("BertForSequenceClassification", "classifier"),
        ("VitsModel", "tts"),
        ("BlipForConditionalGeneration", "vision"),
        ("BertModel", "other"),
    ],
)
def test_a_type_is_told_by_the_class(class_name: str, expected: str) -> None:
    assert type_of_files(["config.json"], config(class_name)) == expected


def test_a_pipeline_draws_whatever_else_is_there() -> None:
    assert type_of_files(["model_index.json", "config.json"], None) == "diffusion"


@pytest.mark.parametrize(
    "text", [None, b"", b"not json", b"[]", b'{"architectures": 7}', b"\xff\xfe"]
)
def test_what_nobody_can_read_is_unknown(text: bytes | None) -> None:
    assert type_of_files(["config.json"], text) == "other"

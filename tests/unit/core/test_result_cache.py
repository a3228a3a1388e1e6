"""Which questions are the same, and which have no answer that could be kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from corral.core.catalogue import READING, READY, CatalogueModel, ModelFile
from corral.core.job_type import JobType
from corral.core.result_cache import (
    MOST_INPUT,
    Question,
    question_of,
    read_label,
)
from corral.core.task import TaskSpec

KIND = JobType("add", cache_ttl_s=60)
MODEL = CatalogueModel(
    "tiny", revision="r1", files=(ModelFile("w", 1, "a" * 64),), status=READY
)


def ask(
    payload: str,
    kind: JobType = KIND,
    model: CatalogueModel | None = MODEL,
    **spec: Any,
) -> Question | None:
    known = {} if model is None else {model.name: model}
    return question_of(kind, TaskSpec("t", kind.name, payload, **spec), known)


def key(payload: str, **more: Any) -> str:
    question = ask(payload, **more)
    assert question is not None
    return question.key


def test_the_order_of_fields_and_blanks_make_no_difference() -> None:
    same = ('{"a": 1, "b": "\\u00fc"}', '{ "b":"ü","a":1}')
    assert len({key(text) for text in same}) == 1


@pytest.mark.parametrize(
    "text", ['{"a": 2}', '{"a": 1.0}', '{"a": "1"}', '{"a": true}', '{"a": [1]}', "1"]
)
def test_other_values_are_other_questions(text: str) -> None:
    assert key(text) != key('{"a": 1}')


@pytest.mark.parametrize(
    "text",
    ["[1e999]", "[-1e999]", "[" * 100_000, "9" * 5000, '"' + "x" * MOST_INPUT + '"'],
    ids=["too large", "too small", "too deep", "too long", "too much"],
)
def test_input_that_cannot_be_told_apart_is_not_kept(text: str) -> None:
    assert ask(text) is None


def test_whose_task_it_is_and_how_urgent_makes_no_difference() -> None:
    plain = key("1")
    assert key("1", owner="ann", priority=9, labels={"team": "x"}) == plain


def test_what_would_answer_it_makes_a_difference() -> None:
    others: list[dict[str, Any]] = [
        {"model": replace(MODEL, revision="r2")},
        {"model": replace(MODEL, files=(ModelFile("w", 1, "b" * 64),))},
        {"model": replace(MODEL, dtype="float16")},
        {"model": None},
        {"kind": JobType("add", target="app/x", cache_ttl_s=60)},
    ]
    payload = '{"model": "tiny"}'
    keys = {key(payload), *(key(payload, **other) for other in others)}
    assert len(keys) == 1 + len(others)


def test_while_the_files_of_its_model_are_read_nothing_is_known() -> None:
    reading = replace(MODEL, status=READING)
    assert ask('{"model_name": "tiny"}', model=reading) is None
    assert ask('{"model_name": "another"}', model=reading) is not None


def test_what_a_label_says_is_read_again() -> None:
    for payload in ('{"model": "tiny"}', "1"):
        question = ask(payload)
        assert question is not None
        assert read_label(question.label) == question

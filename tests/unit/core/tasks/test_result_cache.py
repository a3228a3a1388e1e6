"""Which questions are the same, and which have no answer that could be kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from corral.core.models.catalogue import (
    FAILED,
    READING,
    READY,
    CatalogueModel,
    ModelFile,
)
from corral.core.tasks.job_type import JobType
from corral.core.tasks.options import ResultKey
from corral.core.tasks.result_cache import MOST_INPUT, question_of
from corral.core.tasks.task import TaskSpec

KIND = JobType("add", cache_ttl_s=60)
MODEL = CatalogueModel(
    "tiny", revision="r1", files=(ModelFile("w", 1, "a" * 64),), status=READY
)


def ask(
    payload: str,
    kind: JobType = KIND,
    model: CatalogueModel | None = MODEL,
    needs: str | None = None,
    **spec: Any,
) -> ResultKey | None:
    known = {} if model is None else {model.name: model}
    task = TaskSpec("t", kind.name, payload, model=needs, **spec)
    return question_of(kind, task, known)


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
    wants = partial(key, "1", needs="tiny")
    keys = {wants(), *(wants(**other) for other in others)}
    assert len(keys) == 1 + len(others)


@pytest.mark.parametrize("status", [READING, FAILED])
def test_while_the_files_of_its_model_are_not_known_nothing_is(status: str) -> None:
    model = replace(MODEL, status=status)
    assert ask("1", model=model, needs="tiny") is None
    assert ask("1", model=model, needs="another") is not None


@pytest.mark.parametrize("field", ["model", "model_name"])
def test_of_a_model_that_only_the_input_names_no_revision_is_known(field: str) -> None:
    assert ask(f'{{"{field}": "tiny"}}') is None
    assert ask(f'{{"{field}": "another"}}') is not None

"""What cannot be a task, or be called as one, is refused before anything is sent."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import corral
from corral import errors
from corral.client import Client
from corral.client.functions.function import Function
from corral.client.functions.handle import Handle
from corral.core.tree import TREE_BYTES
from tests.unit.client.sample_code import DOUBLE, HEAD
from tests.unit.client.stand_in import StandIn


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f = corral.task(lambda x: x)", "a lambda cannot be a task"),
        (
            "def out():\n    @corral.task\n    def f(x): ...\n    return f\nout()",
            "made inside a function",
        ),
        ("class A:\n    @corral.task\n    def f(self): ...", "is a method"),
        ("@corral.task\ndef f(x):\n    yield x", "is a generator"),
        ("f = corral.task(print)", "is not a function"),
        ("@corral.task(job_type='a b')\ndef f(x): ...", "job_type must be"),
        ("@corral.task(gpu_memory_mb=-1)\ndef f(x): ...", "gpu_memory_mb"),
    ],
)
def test_what_cannot_travel_is_refused_where_it_is_written(
    load: Callable[..., Any], text: str, words: str
) -> None:
    with pytest.raises(errors.InvalidField, match=words) as caught:
        load(HEAD + text)
    assert "\n" not in caught.value.message


def test_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no option 'retrys'"):
        corral.task(retrys=1)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda f: f.submit(object()), errors.InvalidField, "arguments of double"),
        (lambda f: f.submit(float("nan")), errors.InvalidField, "JSON"),
        (lambda f: f.submit(), TypeError, "missing a required argument"),
        (lambda f: f.submit(1, y=2), TypeError, "unexpected keyword"),
        (lambda f: list(f.map([1], [2])), TypeError, "too many positional"),
        (lambda f: list(f.map([1, object()])), errors.InvalidField, "call 1 of double"),
        (
            lambda f: list(f.options(task_id="t").map([1])),
            errors.InvalidField,
            "is for one call",
        ),
    ],
)
def test_bad_call_is_refused_before_anything_is_sent(
    load: Callable[..., Any],
    manager: StandIn,
    client: Client,
    objects: Any,
    call: Callable[[Any], Any],
    kind: type[Exception],
    words: str,
) -> None:
    with pytest.raises(kind, match=words):
        call(load().double.using(client))
    assert manager.seen == []


def test_function_under_another_name_is_refused(
    load: Callable[..., Any], manager: StandIn, client: Client
) -> None:
    module = load(HEAD + "def f(x):\n    return x\n\ng = corral.task(f)\n")
    with pytest.raises(errors.InvalidField, match="is not this task"):
        module.g.using(client).submit(1)
    assert manager.seen == []


def test_folder_too_large_is_refused_by_name(
    load: Callable[..., Any], manager: StandIn, client: Client, tmp_path: Path
) -> None:
    module = load(DOUBLE, "large")
    with (tmp_path / "large" / "weights").open("wb") as file:
        file.truncate(TREE_BYTES + 1)
    with pytest.raises(errors.TooLarge, match=r"large: .* \.gitignore"):
        module.double.using(client).submit(1)
    assert manager.seen == []


def test_function_of_an_installed_module_is_refused(client: Client) -> None:
    import json

    made = corral.task(json.dumps)
    vars(json)["dumps"] = made
    try:
        with pytest.raises(errors.InvalidField, match="installed package"):
            made.using(client).submit(1)
    finally:
        vars(json)["dumps"] = made.__wrapped__


@pytest.mark.parametrize("where", ["-", "-c"])
def test_function_typed_at_a_prompt_is_told_to_become_a_module(where: str) -> None:
    text = DOUBLE + "double(1)\ndouble.submit(1)\n"
    options = {"input": text} if where == "-" else {}
    told = subprocess.run(
        [sys.executable, where, *([text] if where == "-c" else [])],
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    last = told.stderr.strip().splitlines()[-1]
    assert "was typed in, so there is no file to send: write it to a module" in last


def test_every_example_of_the_guide_is_python_that_exists() -> None:
    guide = Path(__file__).parents[4] / "docs" / "functions.md"
    examples = re.findall(r"```python\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    assert len(examples) >= 5
    for example in examples:
        compile(example, "functions.md", "exec")
    called = set(re.findall(r"\b(?:double|train|handle)\.(\w+)\(", "".join(examples)))
    assert called <= set(vars(Function)) | set(vars(Handle))
    assert called >= {"submit", "map", "options", "result", "status", "cancel"}

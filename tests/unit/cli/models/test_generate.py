"""`corral generate`: the prompt's ways in, the text's ways out, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.cli.model_stand_in import WORKER, Writer
from tests.unit.client.stand_in import (
    Answer,
    Seen,
    StandIn,
    fault,
    submitted,
    task_out,
)


@pytest.fixture
def writer(manager: StandIn) -> Writer:
    return Writer(manager, "once there was a cow")


def test_the_text_is_printed_and_what_was_asked_is_sent(
    writer: Writer, corral: Corral
) -> None:
    ran = corral(
        *("generate", "story", "Once", "--max-tokens", "9", "--temperature", "0.5"),
        *("--top-p", "0.9", "--top-k", "40", "--seed", "7"),
        *("--repetition-penalty", "1.1", "--stop", "END", "--stop", "\n\n"),
    )
    assert (ran.code, ran.out, ran.err) == (0, "once there was a cow\n", "")
    (task,) = writer.tasks
    assert (task["task_type"], task["model_name"]) == ("generate", "story")
    assert task["parameters"] == {
        "prompt": "Once",
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "repetition_penalty": 1.1,
        "seed": 7,
        "stop": ["END", "\n\n"],
        "stream": True,
    }


@pytest.mark.parametrize("way", ["-", "pipe", "file"])
def test_the_prompt_may_come_from_stdin_or_a_file(
    writer: Writer, corral: Corral, tmp_path: Path, way: str
) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("Once\nupon\n")
    words = {"-": ("-",), "pipe": (), "file": ("--file", str(path))}[way]
    ran = corral("generate", "story", *words, stdin="Once\nupon\n")
    assert ran.code == 0
    assert writer.payloads == [{"prompt": "Once\nupon", "stream": True}]


def test_json_is_one_value_with_the_task_and_no_stream(
    writer: Writer, corral: Corral
) -> None:
    ran = corral("generate", "story", "Once", "--json")
    assert json.loads(ran.out) == {
        "task_id": writer.tasks[0]["task_id"],
        "text": "once there was a cow",
        "finish_reason": "stop",
        "prompt_tokens": 3,
        "tokens": 5,
    }
    assert writer.payloads == [{"prompt": "Once"}]


def test_without_a_stream_the_text_comes_whole(writer: Writer, corral: Corral) -> None:
    ran = corral("generate", "story", "Once", "--no-stream")
    assert ran.out == "once there was a cow\n"
    assert writer.payloads == [{"prompt": "Once"}]


def test_with_a_system_text_the_prompt_is_a_message(
    writer: Writer, corral: Corral
) -> None:
    corral("generate", "story", "Hello", "--system", "Be short.")
    assert writer.payloads[0]["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hello"},
    ]


def test_a_lost_attempt_that_began_again_does_not_show(
    writer: Writer, corral: Corral
) -> None:
    def submit(seen: Seen) -> Answer:
        task_id = seen.json["task_id"]
        writer.write(task_id, "one two three")
        rows = [(1, 1, "one "), (1, 2, "two "), (2, 1, "one "), (2, 2, "two ")]
        pieces = [
            {"attempt": attempt, "number": number, "value": {"text": text}}
            for attempt, number, text in rows
        ]
        page = {"pieces": pieces, "cursor": "2:2", "done": True}
        writer.manager.on(f"GET /tasks/{task_id}/output", page)
        return Answer(submitted(task_id))

    writer.manager.on("POST /tasks", submit)
    assert corral("generate", "story", "Once").out == "one two three\n"


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--temperature", "-1", ">= 0"),
        ("--temperature", "9", "<= 5"),
        ("--temperature", "nan", "number"),
        ("--temperature", "inf", "<= 5"),
        ("--top-p", "0", "> 0"),
        ("--top-p", "1.5", "<= 1"),
        ("--top-k", "-1", ">= 0"),
        ("--max-tokens", "0", ">= 1"),
        ("--seed", "-3", ">= 0"),
        ("--repetition-penalty", "0", "> 0"),
        ("--stop", "", ">= 1"),
        ("--seed", "x", "valid int"),
    ],
)
def test_sampling_values_out_of_bounds_are_refused_before_anything_is_sent(
    manager: StandIn, corral: Corral, option: str, value: str, says: str
) -> None:
    ran = corral("generate", "story", "Once", option, value)
    assert ran.code == 2
    assert option in ran.err
    assert says in ran.err
    assert manager.seen == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("Once", "--file", "x"), "not both"),
        (("",), "empty"),
        (("-",), "empty"),
        (("--file", "nowhere.txt"), "nowhere.txt"),
        (("--file", "."), "cannot read"),
        (("--file", "a\x00b"), "null"),
    ],
)
def test_a_prompt_that_cannot_be_had_is_said(
    manager: StandIn, corral: Corral, words: tuple[str, ...], says: str
) -> None:
    ran = corral("generate", "story", *words, stdin="")
    assert ran.code == 2
    assert says in ran.err
    assert manager.seen == []


def test_an_unknown_model_is_named_with_those_there_are_and_the_nearest(
    writer: Writer, corral: Corral
) -> None:
    ran = corral("generate", "storry", "Once")
    assert ran.code == 1
    assert ran.err == (
        "Error: the model 'storry' is unknown; did you mean 'story'? "
        "There are: story, tale, embedder\n"
    )
    assert writer.tasks == []


def test_of_many_models_some_are_named_and_of_none_it_is_said(
    writer: Writer, corral: Corral
) -> None:
    writer.knows(*(f"m{n}" for n in range(14)))
    assert corral("generate", "qqq", "x").err.endswith("m8, m9 and 4 more\n")
    writer.knows()
    assert "corral models add" in corral("generate", "qqq", "x").err


def none_serve(manager: StandIn, *, target: str | None = None, scaled: int = 0) -> None:
    kind = {"name": "generate", "target": target}
    manager.on("GET /workers", {"workers": []})
    manager.on("GET /job-types", {"job_types": [kind]})
    sorts = [{"worker_type": "gpt", "job_type": "generate", "max_workers": scaled}]
    limits = {"max_workers": 9, "wait_s": 1.0, "idle_s": 1.0, "cooldown_s": 1.0}
    manager.on("GET /cluster/scaling", {"enabled": True, "types": sorts, **limits})


def test_without_a_worker_it_is_said_how_to_launch_one(
    writer: Writer, manager: StandIn, corral: Corral
) -> None:
    none_serve(manager)
    ran = corral("generate", "story", "Once")
    assert ran.code == 1
    assert ran.err == (
        "Error: no worker serves 'generate': start one with 'corral worker launch "
        "corral.InferenceWorker --job-type generate'\n"
    )
    assert writer.tasks == []


@pytest.mark.parametrize("told", [{"target": "apps/gpt"}, {"scaled": 2}])
def test_what_is_done_elsewhere_or_by_demand_needs_no_worker_yet(
    writer: Writer, manager: StandIn, corral: Corral, told: dict[str, Any]
) -> None:
    none_serve(manager, **told)
    assert corral("generate", "story", "Once").code == 0


def test_a_worker_that_cannot_start_says_why(
    writer: Writer, manager: StandIn, corral: Corral
) -> None:
    broken = {**WORKER, "status": "error", "error": "no module named torch"}
    manager.on("GET /workers", {"workers": [broken]})
    ran = corral("generate", "story", "Once")
    assert ran.code == 1
    assert "w1 cannot start: no module named torch" in ran.err


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bad_input", "prompt: it has 900 tokens, and model story takes 512"),
        ("unsupported_type", "model embedder is made to embed, not to generate"),
        ("corrupt_model", "model.safetensors has SHA-256 ab, not cd"),
    ],
)
def test_what_the_worker_refuses_is_one_line(
    writer: Writer, corral: Corral, kind: str, message: str
) -> None:
    def submit(seen: Seen) -> Answer:
        task_id = seen.json["task_id"]
        writer.emit(task_id, [])
        error = {"kind": kind, "message": message}
        writer.end(task_id, task_out(task_id, "failed", error=error))
        return Answer(submitted(task_id))

    writer.manager.on("POST /tasks", submit)
    ran = corral("generate", "story", "Once")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("Error: task ")
    assert message in ran.err


def test_a_model_too_large_for_every_card_is_refused_at_submission(
    writer: Writer, corral: Corral
) -> None:
    text = "model story takes 90000 MB of GPU memory at least, and the largest card"
    writer.manager.on("POST /tasks", fault("invalid_field", 422, text))
    ran = corral("generate", "story", "Once")
    assert (ran.code, ran.err) == (1, f"Error: {text}\n")


def test_an_answer_without_text_is_a_failure(writer: Writer, corral: Corral) -> None:
    def submit(seen: Seen) -> Answer:
        task_id = seen.json["task_id"]
        writer.emit(task_id, [])
        writer.end(task_id, task_out(task_id, result={"vectors": []}))
        return Answer(submitted(task_id))

    writer.manager.on("POST /tasks", submit)
    ran = corral("generate", "story", "Once")
    assert ran.code == 1
    assert "has no text" in ran.err

"""`corral embed`: texts in, vectors out, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.cli.model_stand_in import WORKER, Writer
from tests.unit.client.stand_in import Answer, Seen, StandIn, submitted, task_out

VECTORS = {"embeddings": [[1.0, 0.5], [0.0, 2.0]], "dimensions": 2, "tokens": 4}


@pytest.fixture
def embedder(manager: StandIn) -> Writer:
    made = Writer(manager, "")
    manager.on("GET /workers", {"workers": [{**WORKER, "job_types": ["embed"]}]})
    answers(made, VECTORS)
    return made


def answers(writer: Writer, result: Any) -> None:
    def submit(seen: Seen) -> Answer:
        task_id = seen.json["task_id"]
        writer.end(task_id, task_out(task_id, result=result))
        return Answer(submitted(task_id))

    writer.manager.on("POST /tasks", submit)


@pytest.mark.parametrize("words", [("a", "b c"), ("-",), ()])
def test_each_text_gets_a_line(
    embedder: Writer, corral: Corral, words: tuple[str, ...]
) -> None:
    ran = corral("embed", "embedder", *words, stdin="a\nb c\n")
    assert (ran.code, ran.out) == (0, "[1.0, 0.5]\n[0.0, 2.0]\n")
    (task,) = embedder.tasks
    assert (task["task_type"], task["model_name"]) == ("embed", "embedder")
    assert task["parameters"] == {"text": ["a", "b c"]}


def test_json_is_the_whole_answer(embedder: Writer, corral: Corral) -> None:
    assert json.loads(corral("embed", "embedder", "a", "--json").out) == VECTORS


def test_what_is_wrong_is_one_line(embedder: Writer, corral: Corral) -> None:
    ran = corral("embed", "embeder", "a")
    assert ran.code == 1
    assert "did you mean 'embedder'?" in ran.err
    ran = corral("embed", "embedder", "-", stdin="")
    assert ran.code == 2
    assert embedder.tasks == []
    answers(embedder, {"text": "no vectors"})
    ran = corral("embed", "embedder", "a")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "has no embeddings" in ran.err


def test_without_a_worker_it_is_said_how_to_launch_one(
    embedder: Writer, manager: StandIn, corral: Corral
) -> None:
    limits = {"max_workers": 9, "wait_s": 1.0, "idle_s": 1.0, "cooldown_s": 1.0}
    manager.on("GET /workers", {"workers": [WORKER]})
    manager.on("GET /job-types", {"job_types": []})
    manager.on("GET /cluster/scaling", {"enabled": False, **limits})
    ran = corral("embed", "embedder", "a")
    assert ran.code == 1
    assert "corral worker launch corral.InferenceWorker --job-type embed" in ran.err

"""`corral chat`: turns with a history, commands between them, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.cli.model_stand_in import Writer
from tests.unit.client.stand_in import Answer, Seen, StandIn, submitted, task_out


@pytest.fixture
def writer(manager: StandIn) -> Writer:
    return Writer(manager, "I am one", "I am two", "I am three")


def roles(writer: Writer) -> list[list[str]]:
    return [[turn["role"] for turn in p["messages"]] for p in writer.payloads]


def test_each_line_is_a_turn_that_knows_those_before(
    writer: Writer, corral: Corral
) -> None:
    ran = corral("chat", "story", "--seed", "1", stdin="Who?\n\nAnd you?\n")
    assert (ran.code, ran.out, ran.err) == (0, "I am one\nI am two\n", "")
    assert writer.payloads[1] == {
        "messages": [
            {"role": "user", "content": "Who?"},
            {"role": "assistant", "content": "I am one"},
            {"role": "user", "content": "And you?"},
        ],
        "max_tokens": 1024,
        "seed": 1,
        "stream": True,
    }
    assert {task["model_name"] for task in writer.tasks} == {"story"}


def test_a_reset_forgets_all_but_the_system_text(
    writer: Writer, corral: Corral
) -> None:
    ran = corral("chat", "story", "--system", "Be brief.", stdin="a\nb\n/reset\nc\n")
    assert ran.code == 0
    assert roles(writer) == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
        ["system", "user"],
    ]


def test_a_conversation_is_saved_and_exit_leaves_it(
    writer: Writer, corral: Corral, tmp_path: Path
) -> None:
    ran = corral("chat", "story", stdin="a\n/save talk.json\n/help\n/exit\nb\n")
    assert (ran.code, ran.out) == (0, "I am one\n")
    assert "/save FILE" in ran.err
    assert json.loads((tmp_path / "talk.json").read_text()) == {
        "model": "story",
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "I am one"},
        ],
    }


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/rest", "there is no /rest; /help"),
        ("/save", "needs the name of a file"),
        ("/save no/such/place", "no/such/place"),
        ("/save a\x00b", "cannot write"),
    ],
)
def test_a_command_that_cannot_be_done_ends_a_chat_without_a_terminal(
    writer: Writer, corral: Corral, line: str, says: str
) -> None:
    ran = corral("chat", "story", stdin=f"{line}\nhello\n")
    assert ran.code == 1
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert writer.tasks == []


def test_a_turn_that_fails_ends_a_chat_without_a_terminal(
    writer: Writer, corral: Corral
) -> None:
    def submit(seen: Seen) -> Answer:
        task_id = seen.json["task_id"]
        writer.emit(task_id, ["I "])
        error = {"kind": "bad_input", "message": "prompt: it has 900 tokens"}
        writer.end(task_id, task_out(task_id, "failed", error=error))
        return Answer(submitted(task_id))

    writer.manager.on("POST /tasks", submit)
    ran = corral("chat", "story", stdin="a\nb\n")
    assert (ran.code, ran.out) == (1, "I \n")
    assert "prompt: it has 900 tokens" in ran.err
    assert len(writer.tasks) == 1


def test_an_unknown_model_and_wrong_values_are_refused(
    writer: Writer, corral: Corral
) -> None:
    ran = corral("chat", "tail", stdin="a\n")
    assert ran.code == 1
    assert "did you mean 'tale'?" in ran.err
    ran = corral("chat", "story", "--top-p", "2", stdin="a\n")
    assert ran.code == 2
    assert "--top-p" in ran.err
    assert writer.tasks == []

"""What tasks write is data: it does nothing to the terminal of whoever reads it."""

from __future__ import annotations

import base64
import io
import sys

import pytest

from corral.cli.terminal import output
from tests import warm
from tests.unit.cli.conftest import manager
from tests.unit.cli.test_terminal import Terminal, environment, terminal
from tests.unit.client.stand_in import Answer, StandIn, submitted, task_out

__all__ = ["environment", "manager", "terminal"]
EVIL = "\x1b]0;owned\x07 \x9b2J \u202eok"
SHOWN = rb"\x1b]0;owned\x07 \x9b2J \u202eok"
LOGS, RUN = ("logs", "t1"), ("run", "--", "true")
EXEC = ("exec", "t1", "--", "true")


@pytest.fixture
def evil(manager: StandIn) -> StandIn:
    """A task that writes sequences, to both streams, in every way there is."""
    both = [{"text": EVIL, "stream": name, "at": 1.5} for name in ("stdout", "stderr")]
    manager.on("GET /tasks/t1/logs", {"lines": both, "cursor": "1:2", "done": True})
    manager.on("POST /tasks", submitted())
    manager.on("GET /tasks/t1", task_out())
    made = {"task_id": "t1", "exec_id": "e1", "attempt": 1}
    manager.on("POST /tasks/t1/exec", made)
    data = base64.b64encode(EVIL.encode()).decode()
    chunk = {"stream": "stderr", "data": data}
    pages = iter([{"chunks": [chunk], "next": 1, "done": False}])
    last = {"chunks": [], "next": 1, "done": True, "exit_code": 0}
    manager.on("GET /tasks/t1/exec/e1", lambda seen: Answer(next(pages, last)))
    return manager


@pytest.mark.parametrize("words", [LOGS, RUN, EXEC], ids=lambda words: words[0])
def test_l3_terminal_is_shown_sequences_and_obeys_none(
    evil: StandIn,
    environment: dict[str, str],
    terminal: Terminal,
    words: tuple[str, ...],
) -> None:
    process = warm.corral(*words, variables=environment, stderr=terminal.theirs)
    out, _ = process.communicate(timeout=60)
    assert terminal.wait_for(SHOWN)
    assert not terminal.has(b"\x1b]0")
    # A pipe is no terminal: what is read there may be meant for a file.
    assert out == ("" if words is EXEC else f"{EVIL}\n")


def test_l3_raw_is_as_it_came(
    evil: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    raw = ("logs", "--raw", "t1")
    process = warm.corral(*raw, variables=environment, stderr=terminal.theirs)
    process.communicate(timeout=60)
    assert terminal.wait_for(EVIL.encode())


def test_l3_json_on_a_terminal_has_no_sequence_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    output.echo_json({"message": EVIL}, indent=None)
    assert "\x9b" not in screen.getvalue()
    assert r"\u009b2J \u202eok" in screen.getvalue()


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True

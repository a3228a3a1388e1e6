"""What a person at a terminal sees: live progress on stderr, the result on stdout."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.unit.cli.model_stand_in import Writer
from tests.unit.client.stand_in import (
    Answer,
    Seen,
    StandIn,
    fault,
    submitted,
    task_out,
)


class Terminal:
    """A pseudo terminal that keeps what was written to it."""

    def __init__(self) -> None:
        self._own, self.theirs = pty.openpty()
        self._seen = b""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                some = os.read(self._own, 4096)
            except OSError:
                return
            with self._news:
                self._seen += some
                self._news.notify_all()

    def wait_for(self, words: bytes, count: int = 1) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self._seen.count(words) >= count, 60)

    def has(self, words: bytes) -> bool:
        return words in self._seen

    def type(self, keys: bytes) -> None:
        os.write(self._own, keys)

    def close(self) -> None:
        # Without a writer the reader ends by itself, and its end can be closed.
        os.close(self.theirs)
        self._reader.join()
        os.close(self._own)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


@pytest.fixture
def environment(manager: StandIn, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CORRAL_HOME": str(tmp_path),
        "CORRAL_API_KEY": "corral_k_s",
        "CORRAL_MANAGER_URL": manager.url,
        "TERM": "xterm",
        "COLUMNS": "200",
    }


def _start(
    environment: dict[str, str], terminal: Terminal, *words: str
) -> warm.Command:
    return warm.corral(*words, variables=environment, stderr=terminal.theirs)


def test_run_shows_why_it_waits_and_then_the_bare_result(
    manager: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    shown = threading.Event()
    waiting = {"reason": "no worker serves 'echo'"}

    def look(seen: Seen) -> Answer:
        if len(manager.asked("GET /tasks/t1")) == 1:
            return Answer(task_out(status="queued", waiting=waiting))
        shown.wait(30)
        return Answer(task_out())

    manager.on("POST /tasks", task_out(status="queued"))
    manager.on("GET /tasks/t1", look)
    process = _start(environment, terminal, "run", "echo", "{}")
    assert terminal.wait_for(b"no worker serves 'echo'")
    shown.set()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, '{"echoed": "hi"}\n')


def test_interrupted_run_leaves_the_task_and_says_how_to_stop_it(
    manager: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    manager.on("POST /tasks", task_out(status="queued"))
    manager.on("GET /tasks/t1", task_out(status="running"))
    process = _start(environment, terminal, "run", "echo", "{}")
    assert terminal.wait_for(b"t1 running")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert terminal.wait_for(b"corral cancel t1")


def test_a_pull_shows_how_much_of_a_model_is_there(
    manager: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    shown = threading.Event()
    progress = {"fraction": 0.4, "text": "4 of 10 MB"}

    def look(seen: Seen) -> Answer:
        is_done = shown.is_set()
        return Answer(
            task_out() if is_done else task_out(status="running", progress=progress)
        )

    pulls = [{"node_id": "n1", "worker_id": "w1", "task_id": "t1"}]
    manager.on("POST /models/llama/pull", {"model_name": "llama", "pulls": pulls})
    manager.on("GET /tasks/t1", look)
    process = _start(environment, terminal, "models", "pull", "llama")
    assert terminal.wait_for(b"fetching llama")
    assert terminal.wait_for(b"40/100")
    shown.set()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "n1 fetched llama\n")


def _stuck(writer: Writer, pieces: Sequence[str], **more: Any) -> threading.Event:
    """The next task writes this and no more, until it is cancelled: then it is set."""
    cancelled = threading.Event()

    def submit(seen: Seen) -> Answer:
        task_id = seen.json["task_id"]

        def output(seen: Seen) -> Answer:
            if "after" in seen.query:
                cancelled.wait(60)
            page = [
                {"attempt": 1, "number": n, "value": {"text": text}}
                for n, text in enumerate(pieces, 1)
            ]
            told = {"pieces": [] if "after" in seen.query else page, "cursor": "1:1"}
            return Answer({**told, "done": cancelled.is_set()})

        def cancel(seen: Seen) -> Answer:
            cancelled.set()
            return Answer({})

        writer.manager.on(f"GET /tasks/{task_id}/output", output)
        writer.manager.on(f"POST /tasks/{task_id}/cancel", cancel)
        writer.end(task_id, task_out(task_id, "queued", **more))
        return Answer(submitted(task_id))

    writer.manager.on("POST /tasks", submit)
    return cancelled


def test_generate_shows_why_it_waits_and_an_interrupt_stops_the_work(
    manager: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    waiting = {"reason": "no_room", "message": "all cards are full"}
    cancelled = _stuck(Writer(manager, ""), [], waiting=waiting)
    process = _start(environment, terminal, "generate", "story", "Once")
    assert terminal.wait_for(b"story waits: all cards are full")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert cancelled.is_set()


def test_generate_says_that_a_model_is_being_loaded(
    manager: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    manager.on("GET /models/assignments", {"assignments": []})
    cancelled = _stuck(Writer(manager, ""), [], worker_id="w1")
    process = _start(environment, terminal, "generate", "story", "Once")
    assert terminal.wait_for(b"story is being loaded on w1")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert cancelled.is_set()


def test_words_are_printed_while_the_model_goes_on(
    manager: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    cancelled = _stuck(Writer(manager, ""), ["Once ", "there "])
    process = _start(environment, terminal, "generate", "story", "Once")
    assert process.stdout is not None
    assert process.stdout.read(len("Once there ")) == "Once there "
    assert not cancelled.is_set()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_who_reads_no_more_of_the_text_stops_the_work(
    manager: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    cancelled = _stuck(Writer(manager, ""), ["Once ", "there "])
    process = _start(environment, terminal, "generate", "story", "Once")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.close()
    assert process.wait(60) != 0
    assert cancelled.is_set()
    assert not terminal.has(b"Traceback")


def test_in_a_chat_an_interrupt_stops_the_answer_and_not_the_chat(
    manager: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    writer = Writer(manager, "I am well")
    cancelled = _stuck(writer, ["Let ", "me ", "think "])
    place = terminal.theirs
    process = subprocess.Popen(
        [sys.executable, "-m", "corral", "chat", "story"],
        stdin=place, stdout=place, stderr=place, env=environment,
    )  # fmt: skip
    assert terminal.wait_for(b">>> ")
    terminal.type(b"Hello\n")
    assert terminal.wait_for(b"think")
    process.send_signal(signal.SIGINT)
    assert cancelled.wait(60)
    assert terminal.wait_for(b">>> ", 2)
    writer.answer_again()
    terminal.type(b"And now?\n")
    assert terminal.wait_for(b"I am well")
    assert terminal.wait_for(b">>> ", 3)
    terminal.type(b"/what\n")
    assert terminal.wait_for(b"there is no /what")
    assert terminal.wait_for(b">>> ", 4)
    terminal.type(b"\x04")
    assert process.wait(60) == 0
    said = [turn["content"] for turn in writer.payloads[-1]["messages"]]
    assert said == ["Hello", "Let me think ", "And now?"]


def test_wait_and_submit_show_a_bar(
    manager: StandIn, environment: dict[str, str], terminal: Terminal
) -> None:
    manager.on("POST /tasks/batch", {"task_ids": ["a", "b"], "errors": []})
    half = {"tasks": [task_out("a")], "pending": ["b"]}
    shown = threading.Event()

    def collect(seen: Seen) -> Answer:
        if len(seen.json["task_ids"]) == 2:
            return Answer(half)
        shown.wait(30)
        return Answer({"tasks": [task_out("b")]})

    manager.on("POST /tasks/collect", collect)
    process = _start(environment, terminal, "submit", "echo", "--file", "-")
    out, _ = process.communicate("1\n2\n", timeout=60)
    assert out == "a\nb\n"
    assert terminal.wait_for(b"submitting")
    process = _start(environment, terminal, "wait", "a", "b")
    assert terminal.wait_for(b"1/2")
    shown.set()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "a completed\nb completed\n")


@pytest.mark.parametrize("words", [("logs", "-f", "t1"), ("run", "--", "train")])
def test_a_task_that_says_how_far_it_is_gets_a_bar_below_its_lines(
    manager: StandIn,
    environment: dict[str, str],
    terminal: Terminal,
    words: tuple[str, ...],
) -> None:
    shown = threading.Event()
    half = {"fraction": 0.5, "message": "epoch 3 of 6"}

    def look(seen: Seen) -> Answer:
        lines = [{"text": "a line", "at": 1.5}]
        if "after" not in seen.query:
            told = {"lines": lines, "cursor": "1:1", "done": False, "progress": half}
            return Answer(told)
        shown.wait(30)
        return Answer({"lines": lines, "cursor": "1:2", "done": True})

    manager.on("POST /tasks", submitted())
    manager.on("GET /tasks/t1", task_out())
    manager.on("GET /tasks/t1/logs", look)
    process = _start(environment, terminal, *words)
    assert terminal.wait_for(b"epoch 3 of 6")
    assert terminal.wait_for(b" 50%")
    shown.set()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "a line\na line\n")


@pytest.mark.parametrize("words", ["corral generate t", "corral models load t"])
def test_a_shell_completes_names_of_models_and_says_nothing_without_a_cluster(
    manager: StandIn, environment: dict[str, str], words: str
) -> None:
    shell = {
        "_CORRAL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }

    def complete() -> str:
        process = warm.corral(variables={**environment, **shell})
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return out

    Writer(manager, "")
    assert complete().split() == ["tale"]
    manager.on("GET /v1/models", fault("unauthenticated", 401))
    assert complete().split() == []

"""`corral top` in real terminals, large and small, on a cluster whose manager dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.cluster import CORRAL, SLEEP, Cluster, until

TALK = "tests.acceptance.own_workers:TalkWorker=talk"
LOST = "connection lost, trying again"


@dataclass
class Terminal:
    """A program in tmux: keys go in, the screen can be read."""

    socket: Path
    name: str

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-f", "/dev/null", "-S", str(self.socket)]
        # The terminal's own size counts, not that of whoever runs the tests.
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        done = subprocess.run(
            [*command, *arguments], env=env, capture_output=True, text=True, check=False
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", self.name, *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", self.name)

    def shows(self, *words: str) -> None:
        try:
            until(str(words), lambda: all(word in self.screen() for word in words))
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{self.screen()}") from None

    def hides(self, word: str) -> None:
        until(f"no {word}", lambda: word not in self.screen() and self.screen())

    def is_there(self) -> bool:
        return self.name in self.tmux("list-sessions")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("top")
    started = Cluster.start(home, [SLEEP, TALK], CORRAL_SIMULATED_GPUS="2x80GB,1x24GB")
    try:
        started.serving("sleep")
        started.serving("talk")
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def terminals(cluster: Cluster) -> Iterator[tuple[Terminal, Terminal]]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: make system")
    socket = cluster.home / "tmux"
    made = Terminal(socket, "small"), Terminal(socket, "large")
    given = {**cluster.environment, "CORRAL_MANAGER_URL": cluster.url}
    told = [f"-e{name}={value}" for name, value in given.items() if "CORRAL" in name]
    told += [f"-ePYTHONPATH={given['PYTHONPATH']}"]
    for terminal, width, height in ((made[0], "80", "24"), (made[1], "200", "50")):
        size = ("-d", "-x", width, "-y", height, "-s", terminal.name)
        terminal.tmux("new-session", *size, *told, *CORRAL, "top")
    try:
        yield made
    finally:
        made[0].tmux("kill-server")


def test_top_shows_the_cluster_takes_keys_and_outlives_the_manager(
    cluster: Cluster, terminals: tuple[Terminal, Terminal]
) -> None:
    small, large = terminals
    client = cluster.client
    client.wait(client.submit("talk", {"say": "hello from the task"}).task_id)
    running = client.submit("sleep", {"seconds": 900}).task_id
    waiting = client.submit("sleep", {"seconds": 900}).task_id

    for terminal, width, height in ((small, 80, 24), (large, 200, 50)):
        terminal.shows("GPUS  3", running[-8:], waiting[-8:], "1 running", "0/80 GB")
        lines = terminal.screen().splitlines()
        assert len(lines) == height
        assert max(map(len, lines)) <= width
        terminal.shows("Explain", "Cancel", "q Quit")
    # All four lists where there is room; the most important ones where there is not.
    large.shows("NODES  1", "WORKERS  2", "TASKS", running)
    assert "WORKERS" not in small.screen()

    look_around(small)
    explain_and_cancel(small, running, waiting)
    assert client.wait(waiting, 60).status == "cancelled"
    small.press("Escape")
    small.shows(running[-8:])
    read_a_log(large, running)

    # Nobody starts the manager again until both have seen that it is away.
    cluster.process.send_signal(signal.SIGSTOP)
    try:
        cluster.kill("manager")
        for terminal in terminals:
            terminal.shows(LOST, running[-8:])
    finally:
        cluster.process.send_signal(signal.SIGCONT)
    for terminal in terminals:
        terminal.hides(LOST)
        terminal.shows(running[-8:], "1 running")
    client.cancel(running)
    small.shows("0 running")

    for terminal in terminals:
        terminal.press("q")
    until("both have ended", lambda: not (small.is_there() or large.is_there()))


def look_around(small: Terminal) -> None:
    small.press("2")
    small.shows("WORKERS  2")
    small.press("1")
    small.shows("TASKS")
    small.press("s")
    small.shows("TASK▼")
    small.press("r")
    small.shows("TASK▲")


def explain_and_cancel(small: Terminal, running: str, waiting: str) -> None:
    small.press("/")
    small.press("-l", "queued")
    small.hides(running[-8:])
    small.press("Enter")
    small.press("x")
    small.shows(f"Task {waiting}", "corral worker launch")
    small.press("Escape")
    small.hides("corral worker launch")
    small.press("c")
    small.shows("Cancel sleep", "y: yes")
    small.press("y")


def read_a_log(large: Terminal, running: str) -> None:
    large.press("/")
    large.press("-l", "talk")
    large.hides(running)
    large.press("Enter")
    large.press("l")
    large.shows("hello from the task", "the task has ended")
    large.press("Escape")
    large.hides("hello from the task")
    large.press("Escape")
    large.shows(running)

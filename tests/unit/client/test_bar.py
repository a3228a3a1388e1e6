"""The bar is on a terminal's stderr, and in nobody's way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.unit.cli.test_terminal import Terminal

SCRIPT = """
from corral.client.progress import bar
with bar("counting") as advance:
    for n in range(3):
        advance(n + 1, 3)
        print("got", n)
"""
PRINTED = "got 0\ngot 1\ngot 2\n"


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def test_bar_shows_on_a_terminal_and_prints_still_reach_their_pipe(
    terminal: Terminal,
) -> None:
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=terminal.theirs,
        text=True,
        check=True,
    )
    assert told.stdout == PRINTED
    assert terminal.wait_for(b"counting")


def test_there_is_no_bar_where_stderr_is_no_terminal() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert (told.stdout, told.stderr) == (PRINTED, "")

"""What a script prints: passed on, its progress heard, its end kept."""

from __future__ import annotations

import os
import random
import subprocess
import sys

from corral.worker.script.output import TAIL_BYTES, ScriptOutput


class Heard:
    def __init__(self) -> None:
        self.passed: list[tuple[str, bytes]] = []
        self.progress: list[tuple[float, str]] = []
        self.output = ScriptOutput(
            lambda stream, data: self.passed.append((stream, data)),
            lambda share, text: self.progress.append((share, text)),
        )


def test_progress_lines_are_heard_and_not_shown() -> None:
    heard = Heard()
    heard.output.feed("stdout", b"a\n::progress 30/100 half")
    heard.output.feed("stdout", b" way\nb\n::progress 1/0\n::progress 2/4\n")
    heard.output.close()
    assert heard.progress == [(0.3, "half way"), (0.5, "2/4")]
    shown = b"".join(data for _, data in heard.passed)
    assert shown == b"a\nb\n::progress 1/0\n"


def test_the_end_of_each_stream_is_exact_however_it_came() -> None:
    printed = b"".join(b"line %d\n" % n for n in range(30_000))
    heard = Heard()
    start = 0
    while start < len(printed):
        size = random.randint(1, 5000)
        heard.output.feed("stdout", printed[start : start + size])
        start += size
    heard.output.feed("stderr", b"oh\nno")
    heard.output.close()
    assert b"".join(d for s, d in heard.passed if s == "stdout") == printed
    kept = heard.output.tail("stdout").encode()
    assert printed.endswith(b"\n" + kept)
    assert TAIL_BYTES - 20 < len(kept) <= TAIL_BYTES
    assert (heard.output.tail("stderr"), heard.output.last_line()) == ("oh\nno", "no")


def test_python_in_a_script_says_how_far_it_is_by_printing_it() -> None:
    code = "import corral; corral.progress(3, 4, 'two\\nlines'); corral.progress(0.5)"
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "CORRAL_SCRIPT": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, env=environment, capture_output=True, check=True)
    heard = Heard()
    heard.output.feed("stdout", said.stdout)
    assert heard.progress == [(0.75, "two lines"), (0.5, "0.5/1")]
    assert not heard.passed
    del environment["CORRAL_SCRIPT"]
    said = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert said.stdout == b""

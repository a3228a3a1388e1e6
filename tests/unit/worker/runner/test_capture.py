from __future__ import annotations

import random
import time

import pytest

from corral.worker.runner.capture import (
    FULL,
    HEAD_LIMIT,
    LINE_LIMIT,
    PIECE_LIMIT,
    TAIL_LIMIT,
    Capture,
)
from corral.worker.text import clean


@pytest.fixture
def capture() -> Capture:
    capture = Capture()
    capture.open()
    return capture


def texts(capture: Capture) -> list[str]:
    return [line for _, _, text in capture.close() for line in text.split("\n")]


def numbered(first: int, last: int) -> bytes:
    return b"".join(b"line %d\n" % n for n in range(first, last))


def test_progress_bar_leaves_only_what_it_showed_last(capture: Capture) -> None:
    capture.feed("stderr", b"10%\r20%\r100%\n")
    capture.feed("stderr", b"windows line\r\n")
    for step in range(100_000):
        capture.feed("stdout", b"\rstep %d" % step)
    assert texts(capture) == ["100%", "windows line", "step 99999"]


def test_line_in_pieces_is_put_together(capture: Capture) -> None:
    for piece in (b"a", b"b\nc", b"d"):
        capture.feed("stdout", piece)
    assert [text for _, _, text in capture.take()] == ["ab"]
    assert texts(capture) == ["cd"]


def test_streams_do_not_mix_within_a_line(capture: Capture) -> None:
    capture.feed("stdout", b"out ")
    capture.feed("stderr", b"err\n")
    capture.feed("stdout", b"put\n")
    assert [line[1:] for line in capture.close()] == [
        ("stderr", "err"),
        ("stdout", "out put"),
    ]


def test_text_that_no_store_would_take_is_shown_as_escapes(capture: Capture) -> None:
    capture.feed("stdout", b"a\x00b \xff \xc3\xa9\n")
    assert texts(capture) == ["a\\x00b \\xff é"]


@pytest.mark.parametrize("size", [1, 5, 4096, 1 << 18, 1 << 30])
def test_the_first_and_the_exact_last_part_are_kept(
    capture: Capture, size: int
) -> None:
    # The usual limit once: what is fed in other sizes need not be megabytes for it.
    count = 1_500_000 if size == 1 << 18 else 36_000
    capture.limit(HEAD_LIMIT if size == 1 << 18 else 100_000)
    printed = numbered(0, count)
    for start in range(0, len(printed), size):
        capture.feed("stdout", printed[start : start + size])
    lines = texts(capture)
    mark = next(i for i, line in enumerate(lines) if line.startswith("["))
    head, tail = lines[:mark], lines[mark + 1 :]
    assert head == [f"line {n}" for n in range(len(head))]
    assert tail == [f"line {n}" for n in range(count - len(tail), count)]
    assert 0 <= TAIL_LIMIT - sum(len(line) + 1 for line in tail) < 20
    lost = count - len(head) - len(tail)
    size = sum(len(f"line {n}\n") for n in range(len(head), count - len(tail)))
    assert lines[mark] == f"[{lost} lines, {size} bytes left out]"


def test_what_fits_into_both_parts_together_is_whole(capture: Capture) -> None:
    capture.limit(1000)
    printed = numbered(0, 20_000)
    assert 1000 < len(printed) < 1000 + TAIL_LIMIT
    capture.feed("stdout", printed)
    assert texts(capture) == printed.decode().splitlines()
    capture.open()
    capture.feed("stdout", b"the next task starts anew\n")
    assert texts(capture) == ["the next task starts anew"]


@pytest.mark.parametrize("size", [7, 10_000, 1 << 30])
def test_a_line_that_is_too_long_is_cut_with_a_mark(
    capture: Capture, size: int
) -> None:
    printed = b"before\n" + b"x" * 300_000 + b"\nafter\n"
    for start in range(0, len(printed), size):
        capture.feed("stdout", printed[start : start + size])
    before, cut, after = texts(capture)
    kept = "x" * LINE_LIMIT
    assert (before, after) == ("before", "after")
    assert cut == f"{kept} [{300_000 - LINE_LIMIT} bytes of this line left out]"


def test_who_prints_too_much_at_once_sees_to_the_flushing() -> None:
    flushed: list[str] = []
    full = Capture(lambda: flushed.extend(line[2] for line in full.take()))
    full.open()
    for n in range(20_000):
        full.feed("stdout", b"line %d\n" % n)
    assert len(flushed) > 1
    assert max(map(len, flushed)) <= FULL + 20
    left = [line[2] for line in full.close()]
    lines = "\n".join([*flushed, *left]).split("\n")
    assert lines == [f"line {n}" for n in range(20_000)]


def test_pieces_stay_small_and_end_where_lines_end(capture: Capture) -> None:
    printed = "".join(f"{random.randbytes(n % 900).hex()}\n" for n in range(2000))
    capture.feed("stdout", printed.encode())
    pieces = [text for _, _, text in capture.close()]
    assert max(map(len, pieces)) <= PIECE_LIMIT
    assert "\n".join(pieces) == printed.removesuffix("\n")


@pytest.mark.parametrize("is_empty", [True, False])
def test_many_short_lines_at_once_take_time_in_proportion(
    capture: Capture, is_empty: bool
) -> None:
    data = b"\n" * 4_000_000 if is_empty else numbered(0, 400_000)
    began = time.process_time()
    capture.feed("stdout", data)
    capture.close()
    assert time.process_time() - began < 1.0


def test_long_text_keeps_its_two_ends() -> None:
    shown = clean("a" * 50 + "b" * 50, limit=20)
    assert shown.startswith("a" * 10)
    assert shown.endswith("b" * 10)
    assert "80 characters cut" in shown

from __future__ import annotations

from corral.worker.capture import Capture
from corral.worker.text import clean


def texts(capture: Capture) -> list[str]:
    return [text for _, _, text in capture.close()]


def test_progress_bar_leaves_only_what_it_showed_last() -> None:
    capture = Capture()
    capture.open()
    capture.feed("stderr", b"10%\r20%\r100%\n")
    capture.feed("stderr", b"windows line\r\n")
    assert texts(capture) == ["100%", "windows line"]


def test_line_in_pieces_is_put_together() -> None:
    capture = Capture()
    capture.open()
    for piece in (b"a", b"b\nc", b"d"):
        capture.feed("stdout", piece)
    assert [text for _, _, text in capture.take()] == ["ab"]
    assert texts(capture) == ["cd"]


def test_text_that_no_store_would_take_is_shown_as_escapes() -> None:
    capture = Capture()
    capture.open()
    capture.feed("stdout", b"a\x00b \xff \xc3\xa9\n")
    assert texts(capture) == ["a\\x00b \\xff é"]


def test_long_text_keeps_its_two_ends() -> None:
    shown = clean("a" * 50 + "b" * 50, limit=20)
    assert shown.startswith("a" * 10)
    assert shown.endswith("b" * 10)
    assert "80 characters cut" in shown

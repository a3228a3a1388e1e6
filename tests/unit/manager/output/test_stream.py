"""What is kept of output: bounded, cut where an attempt begins anew, forgotten."""

from __future__ import annotations

from corral.manager.cluster.streams import (
    ALL_BYTES,
    TASK_BYTES,
    AttemptPieces,
    OutputStreams,
)
from corral.manager.output.stream import KEEP_S


def pieces(task_id: str, attempt: int, first: int, *texts: str) -> AttemptPieces:
    return AttemptPieces(task_id, attempt, first, [text.encode() for text in texts])


def kept(streams: OutputStreams, task_id: str = "t") -> tuple[int, list[bytes]]:
    stream = streams.get(task_id)
    assert stream is not None
    return stream.base, stream.values


def test_an_attempt_that_goes_on_keeps_what_was_there() -> None:
    streams = OutputStreams()
    streams.add(pieces("t", 1, 1, "a", "b"))
    assert streams.emitted("t", 1) == ()
    assert streams.emitted("t", 2) == (b"a", b"b")
    streams.add(pieces("t", 2, 3, "c"))
    assert kept(streams) == (0, [b"a", b"b", b"c"])
    assert streams.emitted("t", 3) == (b"a", b"b", b"c")


def test_an_attempt_that_begins_again_voids_what_was_there() -> None:
    streams = OutputStreams()
    streams.add(pieces("t", 1, 1, "a", "b", "c"))
    streams.add(pieces("t", 2, 1, "x"))
    assert kept(streams) == (0, [b"x"])


def test_pieces_that_another_manager_had_are_missing_and_nothing_goes_on() -> None:
    streams = OutputStreams()
    streams.add(pieces("t", 1, 8, "h"))
    assert kept(streams) == (7, [b"h"])
    assert streams.emitted("t", 2) == ()
    streams.add(pieces("t", 1, 12, "l"))
    assert kept(streams) == (11, [b"l"])


def test_one_task_keeps_only_its_last_pieces() -> None:
    streams = OutputStreams()
    large = "x" * (TASK_BYTES // 8)
    for number in range(1, 41):
        streams.add(pieces("t", 1, number, large))
    base, values = kept(streams)
    assert 0 < len(values) * len(large) <= TASK_BYTES
    assert base + len(values) == 40
    assert streams.emitted("t", 2) == ()


def test_all_together_are_bounded_and_the_ended_go_first() -> None:
    streams = OutputStreams(10_000)
    for name in ("old", "ended", "new"):
        streams.add(pieces(name, 1, 1, "x" * 3000))
    streams.end("ended")
    streams.add(pieces("newer", 1, 1, "x" * 3000))
    assert streams.get("ended") is None
    assert streams.get("old") is not None
    streams.add(pieces("newest", 1, 1, "x" * 3000))
    assert streams.get("old") is None
    assert len(streams) == 3
    assert ALL_BYTES > 10_000


def test_an_ended_task_is_forgotten_after_a_while_and_its_next_run_begins_anew() -> (
    None
):
    streams = OutputStreams()
    streams.add(pieces("t", 1, 1, "a"))
    streams.sweep(0.0, KEEP_S)
    streams.end("t")
    assert streams.emitted("t", 2) == ()
    streams.sweep(100.0, KEEP_S)
    streams.sweep(100.0 + KEEP_S - 1, KEEP_S)
    assert kept(streams) == (0, [b"a"])
    streams.sweep(100.0 + KEEP_S, KEEP_S)
    assert len(streams) == 0
    streams.add(pieces("t", 1, 1, "a"))
    streams.end("t")
    streams.add(pieces("t", 2, 1, "b"))
    assert streams.emitted("t", 3) == (b"b",)

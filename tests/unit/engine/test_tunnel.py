"""What a node may say through the tunnel, however it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.engine.tunnel import CommandGuard
from corral.errors import Forbidden

USER = "node-n1"
WORDS = st.lists(st.binary(max_size=40) | st.just(b"x" * 2000), min_size=1, max_size=5)


def command(*words: bytes) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))


def fed(stream: bytes, cuts: list[int]) -> bytes:
    """All that passes, with the stream cut at these places."""
    guard, passed, last = CommandGuard(USER), b"", 0
    for cut in [*sorted(c % (len(stream) + 1) for c in cuts), len(stream)]:
        passed += guard.feed(stream[last:cut])
        last = cut
    return passed


def heard(pieces: list[bytes]) -> tuple[bytes, bool]:
    """What passes of these, and whether they ended with a refusal."""
    guard, passed = CommandGuard(USER), b""
    try:
        for piece in pieces:
            passed += guard.feed(piece)
    except Forbidden:
        return passed, True
    return passed, False


def is_harmless(words: list[bytes]) -> bool:
    return words[0].upper() not in (b"AUTH", b"HELLO", b"RESET")


@given(st.lists(WORDS.filter(is_harmless), max_size=5), st.lists(st.integers(0)))
def test_commands_pass_unchanged_however_they_are_cut(
    commands: list[list[bytes]], cuts: list[int]
) -> None:
    stream = b"".join(command(*words) for words in commands)
    assert fed(stream, cuts) == stream


@pytest.mark.parametrize(
    "words",
    [
        (b"AUTH", b"node-n1", b"pw"),
        (b"auth", b"node-n1", b""),
        (b"HELLO",),
        (b"HELLO", b"3"),
        (b"hello", b"3", b"auth", b"node-n1", b"pw"),
        (b"HELLO", b"3", b"SETNAME", b"AUTH", b"AUTH", b"node-n1", b"pw"),
    ],
)
def test_its_own_login_passes(words: tuple[bytes, ...]) -> None:
    stream = command(*words)
    for cut in range(len(stream)):
        assert fed(stream, [cut]) == stream


BAD = [
    command(b"AUTH", b"pw"),
    command(b"AUTH"),
    command(b"Auth", b"default", b"pw"),
    command(b"AUTH", b"node-n1", b"pw", b"more"),
    command(b"AUTH", b"default", b"x" * 5000),
    command(b"HELLO", b"3", b"AUTH", b"default", b"pw"),
    command(b"HELLO", b"3", b"AUTH", b"node-n1", b"pw", b"AUTH", b"default", b"pw"),
    command(b"HELLO", b"3", b"SETNAME", b"x", b"auth", b"default", b"pw"),
    command(b"HELLO", b"3", b"OTHER"),
    command(b"HELLO", *[b"SETNAME"] * 40),
    command(b"RESET"),
    command(b"reset", b"x"),
    # Not as clients write commands: Redis and we might not read the same.
    b"AUTH default pw\r\n",
    b"PING\r\n",
    b"\r\n" + command(b"PING"),
    b"*0\r\n" + command(b"PING"),
    b"*-1\r\n",
    b"*1\n$4\nPING\n*1\n$4\nPING\n",
    b"*01\r\n$4\r\nPING\r\n",
    b"*1\r\n$+4\r\nPING\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n:4\r\n",
    b"*1\r\n$4\r\nPINGxx*1\r\n$5\r\nRESET\r\n",
    b"*1\r\n$2000\r\n" + b"x" * 2000 + b"AB",
    b"*1\r\n$2000\r\n" + b"x" * 2000 + b"\rB",
    b"*" + b"1" * 40,
]


@pytest.mark.parametrize("stream", BAD)
def test_whatever_could_make_it_another_user_is_refused(stream: bytes) -> None:
    """Also behind other commands, and in pieces; and nothing of it gets through."""
    before = command(b"PING")
    for cut in range(len(stream)):
        passed, is_refused = heard([before, stream[:cut], stream[cut:]])
        assert is_refused
        assert b"RESET" not in passed.upper()
        assert b"AUTH" not in passed.upper()


def parsed(stream: bytes) -> list[list[bytes]]:
    """As Redis reads it; the last command may not be whole."""
    commands: list[list[bytes]] = []
    at = 0
    while at < len(stream):
        words: list[bytes] = []
        end = stream.index(b"\r", at)
        count, at = int(stream[at + 1 : end]), end + 2
        for _ in range(count):
            if at >= len(stream) or b"\r" not in stream[at:]:
                return [*commands, words]
            end = stream.index(b"\r", at)
            size, at = int(stream[at + 1 : end]), end + 2
            words.append(stream[at : at + size])
            at += size + 2
        commands.append(words)
    return commands


PIECES = [command(b"PING"), *BAD, b"*1\r\n", b"$4\r\n", b"AUTH", b"RESET", b"\r\n"]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=12), max_size=8))
@example([b"*2\r\n$3\r\nGET\r\n$9\r\n*1\r\n$5\r\nRESET\r\n"])
def test_no_bytes_lead_to_a_login_that_redis_would_read(pieces: list[bytes]) -> None:
    for words in parsed(heard(pieces)[0]):
        if words and not is_harmless(words):
            assert words[0].upper() in (b"AUTH", b"HELLO")
            assert b"default" not in words

"""The guard before the stand-in for Redis: what counts as showing a password."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.embedded.fake_redis import (
    GuardedServer,
    credentials,
    read_settings,
    split_command,
)
from corral.embedded.server import command, free_port
from corral.engine.dispatch import Dispatcher
from corral.errors import EngineUnavailable

WORDS = st.lists(st.text(min_size=1), min_size=1, max_size=6)


@given(WORDS)
def test_whole_command_is_split_into_its_words(words: list[str]) -> None:
    expected = [word.encode("utf-8", "replace") for word in words]
    wire = b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in expected)
    assert split_command(b"*%d\r\n%b" % (len(words), wire) + b"*1") == expected


@given(st.data())
def test_command_that_is_not_whole_yet_has_no_words(data: st.DataObject) -> None:
    wire = command("AUTH", "user", "secret")
    cut = data.draw(st.integers(0, len(wire) - 1))
    assert split_command(wire[:cut]) == []


@given(st.binary(max_size=64))
def test_no_bytes_at_all_break_the_guard(noise: bytes) -> None:
    credentials(split_command(noise))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([b"AUTH", b"pw"], (b"default", b"pw")),
        ([b"auth", b"me", b"pw"], (b"me", b"pw")),
        ([b"HELLO", b"3", b"AUTH", b"me", b"pw"], (b"me", b"pw")),
        ([b"hello", b"3", b"SETNAME", b"x", b"auth", b"me", b"pw"], (b"me", b"pw")),
        ([b"HELLO", b"3"], None),
        ([b"HELLO", b"3", b"AUTH", b"me"], None),
        ([b"AUTH"], None),
        ([b"PING"], None),
        ([], None),
    ],
)
def test_credentials_are_found_where_redis_clients_put_them(
    words: list[bytes], expected: tuple[bytes, bytes] | None
) -> None:
    assert credentials(words) == expected


def test_settings_are_read_as_redis_writes_them(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text('port "7"\nsave ""\nrequirepass "a b"\n')
    assert read_settings(tmp_path / "conf") == {
        "port": "7",
        "save": "",
        "requirepass": "a b",
    }


async def test_a_node_is_carried_to_the_stand_in_as_to_a_real_one() -> None:
    """Whoever asks before logging in is refused, and may then log in."""
    port = free_port()
    server = GuardedServer(port, "geheim")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    engine = Dispatcher(f"redis://:geheim@127.0.0.1:{port}/0")
    try:
        with pytest.raises(EngineUnavailable, match="node-n1"):
            await engine.open("n1", "pw")
        assert await engine.grant("n1", "pw") == "node-n1"
        link = await engine.open("n1", "pw")
        await link.write(command("PING"))
        assert await link.read() == b"+PONG\r\n"
        link.close()
    finally:
        await engine.close()
        server.shutdown()
        server.server_close()

"""A node's own connection to Redis: logged in as its user, and as nobody else.

The manager opens it and carries the node's bytes. Access lists cannot forbid AUTH,
HELLO and RESET, by which a connection becomes another user, so the commands of the
stream are looked at: their words are read, nothing is changed. What is not written the
one way that clients write commands ends the connection, so that Redis can never read
another command than was seen here.
"""

from __future__ import annotations

import asyncio
import re
import ssl

from corral.engine.address import RedisAddress
from corral.errors import EngineUnavailable, Forbidden

CHUNK = 64 * 1024
_LOGIN_S = 5.0
# `*3` and `$42`: what Redis itself refuses is not a number of ours either.
_COUNT = re.compile(rb"\*([1-9][0-9]{0,6})")
_SIZE = re.compile(rb"\$(0|[1-9][0-9]{0,8})")
_LONGEST_LINE = 16
# Whatever is longer is none of the words that are judged.
_LONGEST_WORD = 1024
_MOST_WORDS = 16
_JUDGED = (b"AUTH", b"HELLO", b"RESET")


class CommandGuard:
    """Reads what a node sends; what it gives back may go on to Redis."""

    def __init__(self, user: str) -> None:
        self._user = user.encode()
        # Bytes that came, and those of them that were read but not passed on yet.
        self._new = bytearray()
        self._held = bytearray()
        # Words of this command, as long as it may be one that matters.
        self._words: list[bytes] | None = []
        self._words_left = 0
        # Bytes of the current word, with the line's end behind it; None between words.
        self._word_left: int | None = None

    def feed(self, data: bytes) -> bytes:
        """What may go on by now.

        Raises:
            Forbidden: a command that would make this connection another user's, or
                bytes that are no commands as clients write them.
        """
        self._new += data
        passed = bytearray()
        while self._read():
            if self._words is None:
                passed += self._held
                self._held.clear()
        return bytes(passed)

    def _read(self) -> bool:
        """One step further; false when more bytes are needed for that."""
        if not self._words_left:
            return self._read_count()
        if self._word_left is None:
            return self._read_size()
        return self._read_whole() if self._words is not None else self._read_part()

    def _read_count(self) -> bool:
        found = self._line(_COUNT)
        if found is None:
            return False
        self._words_left, self._words = found, []
        return True

    def _read_size(self) -> bool:
        found = self._line(_SIZE)
        if found is None:
            return False
        self._word_left = found + 2
        if self._words is not None and found > _LONGEST_WORD:
            self._judge_long()
        return True

    def _read_whole(self) -> bool:
        """A word that may matter is read in one piece."""
        assert self._word_left is not None
        assert self._words is not None
        if len(self._new) < self._word_left:
            return False
        word = bytes(self._new[: self._word_left])
        self._take(self._word_left)
        if not word.endswith(b"\r\n"):
            raise _unreadable()
        self._words.append(word[:-2])
        self._end_word()
        return True

    def _read_part(self) -> bool:
        """Any other as it comes."""
        assert self._word_left is not None
        if not self._new:
            return False
        left = self._word_left
        part = self._new[:left]
        # The line's end may come in two pieces, each must be right.
        due = b"\r\n"[max(0, 2 - left) :][: len(part) - max(0, left - 2)]
        if len(part) > left - 2 and not part.endswith(due):
            raise _unreadable()
        self._take(len(part))
        self._word_left = left - len(part)
        if not self._word_left:
            self._end_word()
        return True

    def _end_word(self) -> None:
        self._word_left = None
        self._words_left -= 1
        words = self._words
        if words is None:
            return
        if words[0].upper() not in _JUDGED:
            self._words = None
        elif len(words) > _MOST_WORDS:
            raise _forbidden(words[0])
        elif not self._words_left:
            self._judge(words)
            self._words = None

    def _judge_long(self) -> None:
        if self._words:
            raise _forbidden(self._words[0])
        self._words = None

    def _judge(self, words: list[bytes]) -> None:
        """May log in as the node's own user, once more; as whoever else, not."""
        name, rest = words[0].upper(), words[1:]
        if name == b"AUTH" and len(rest) == 2 and rest[0] == self._user:
            return
        if name != b"HELLO":
            raise _forbidden(name)
        options = iter(rest[1:])
        for option in options:
            values = {b"AUTH": 2, b"SETNAME": 1}.get(option.upper(), 0)
            given = [next(options, b"") for _ in range(values)]
            if not given or (len(given) == 2 and given[0] != self._user):
                raise _forbidden(name)

    def _line(self, shape: re.Pattern[bytes]) -> int | None:
        end = self._new.find(b"\r\n", 0, _LONGEST_LINE)
        if end < 0:
            # `\r` alone may be the first half of the end.
            if len(self._new) >= _LONGEST_LINE:
                raise _unreadable()
            return None
        found = shape.fullmatch(self._new, 0, end)
        if found is None:
            raise _unreadable()
        number = int(found[1])
        self._take(end + 2)
        return number

    def _take(self, count: int) -> None:
        self._held += self._new[:count]
        del self._new[:count]


class EngineLink:
    """One connection that carries what a node and Redis say to each other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, user: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._guard = CommandGuard(user)

    async def read(self) -> bytes:
        """What Redis says; nothing when it has ended. Raises OSError."""
        return await self._reader.read(CHUNK)

    async def write(self, data: bytes) -> None:
        """Say what the node says; raises Forbidden or OSError."""
        passed = self._guard.feed(data)
        if passed:
            self._writer.write(passed)
            await self._writer.drain()

    def close(self) -> None:
        """End it at once; whoever reads is told that it has ended."""
        self._writer.transport.abort()


async def connect(address: RedisAddress, user: str) -> EngineLink:
    """A connection that nobody is logged in on yet; raises OSError."""
    if address.path:
        return EngineLink(*await asyncio.open_unix_connection(address.path), user)
    context = ssl.create_default_context() if address.tls else None
    ends = await asyncio.open_connection(address.host, address.port, ssl=context)
    return EngineLink(*ends, user)


async def open_link(address: RedisAddress, user: str, password: str) -> EngineLink:
    """A connection that is `user`'s before a byte is carried.

    Raises:
        Forbidden: this Redis lets anybody in, so that nothing would keep a node there.
        EngineUnavailable: it does not answer, or does not know the user (yet).
    """
    try:
        async with asyncio.timeout(_LOGIN_S):
            link = await connect(address, user)
            try:
                await _log_in(link, user, password)
            except BaseException:
                link.close()
                raise
    except (OSError, TimeoutError) as e:
        raise EngineUnavailable(f"Redis does not answer: {e}") from e
    return link


async def _log_in(link: EngineLink, user: str, password: str) -> None:
    # First as nobody, who must be refused: else the user would be of no use.
    if not (await _ask(link, "PING")).startswith(b"-NOAUTH"):
        raise Forbidden(
            "this Redis asks for no password, so no node is let through to it: set "
            "requirepass there and name the password in CORRAL_REDIS_URL"
        )
    if await _ask(link, "AUTH", user, password) != b"+OK\r\n":
        raise EngineUnavailable(f"Redis does not know the user {user} (yet)")


async def _ask(link: EngineLink, *words: str) -> bytes:
    """One command, and the line that answers it."""
    parts = [b"$%d\r\n%b\r\n" % (len(w.encode()), w.encode()) for w in words]
    await link.write(b"*%d\r\n%b" % (len(words), b"".join(parts)))
    heard = b""
    while not heard.endswith(b"\r\n"):
        piece = await link.read()
        if not piece or len(heard) > _LONGEST_WORD:
            raise EngineUnavailable("Redis hung up before the login")
        heard += piece
    return heard


def _forbidden(name: bytes) -> Forbidden:
    word = name.decode("ascii", "replace").upper()
    return Forbidden(f"{word} as another user is not for nodes")


def _unreadable() -> Forbidden:
    return Forbidden("what came through the tunnel are no commands of a Redis client")

"""The call that follows what a task emits while it runs."""

from __future__ import annotations

from typing import Any

import msgspec

from corral.client.exchange import Items, Stream, get, segment
from corral.client.fault import decode
from corral.client.task import POLL_S, TaskRef, id_of
from corral.client.value import Value


class Piece(Value, frozen=True, kw_only=True):
    """A piece of output, any JSON value.

    Pieces are counted from 1 on. When an attempt that begins again follows another,
    its first piece has a number that was there before: what came from there on is void.
    """

    attempt: int
    number: int
    value: Any


class _Page(msgspec.Struct):
    pieces: list[Piece]
    cursor: str
    done: bool


def stream(task: TaskRef) -> Stream[Piece]:
    """What a task emits, as it does, until it ends; `result` then tells how.

    Pieces come in order and once, through lost connections. They are kept in the
    manager's memory alone: of one that ended a while ago there are none.
    """
    path, cursor = f"/tasks/{segment(id_of(task))}/output", None
    while True:
        response = yield get(path, wait_s=POLL_S, wait=POLL_S, after=cursor)
        page = decode(response, _Page)
        if page.pieces:
            yield Items(page.pieces)
        if page.done:
            return
        cursor = page.cursor

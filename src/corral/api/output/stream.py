"""/tasks/{id}/stream and /output: what a running task emits, as events or in pages.

What a task returns in the end is no piece of it; that is the task's result.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from msgspec import Raw, Struct

from corral.api.body import answer
from corral.api.openapi import described
from corral.api.tasks import render
from corral.api.tasks.routes import Reader, Wait, id_of
from corral.api.tasks.shapes import TaskBrief
from corral.core.access.key import Scope
from corral.core.tasks.task import check_owner
from corral.errors import InvalidField
from corral.manager.cluster.streams import Place
from corral.manager.output.stream import OutputPage, OutputReader
from corral.manager.tasks import Tasks
from corral.wire.output import Piece, StreamPage

router = APIRouter(prefix="/tasks", tags=["tasks"])
HEARTBEAT_S = 15.0
_CURSOR = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_encode = msgspec.json.Encoder().encode
After = Annotated[str | None, Query(description="a cursor: only what came after it")]
Cancels = Annotated[
    bool, Query(description="cancel the task when this connection is lost")
]
EVENTS = {"X-Accel-Buffering": "no"}
"""Headers that keep proxies from holding events back."""


class RestartedOut(Struct):
    """Pieces of another attempt follow; what came after number `after` is void."""

    attempt: int
    after: int


class SkippedOut(Struct):
    """So many pieces are no longer there."""

    count: int


class PieceOut(Piece, frozen=True, kw_only=True):
    """One piece; `value` is any JSON value."""

    value: Raw


class OutputOut(StreamPage, frozen=True, kw_only=True):
    """`task` comes with the end, once everything before it has been told."""

    pieces: list[PieceOut]  # type: ignore[assignment]
    restarted: RestartedOut | None = None
    skipped: int = 0
    task: TaskBrief | None = None


def _as_events() -> dict[str, Any]:
    """As other routes are described, but with events where those have JSON."""
    said = described(PieceOut, errors=(404, 422))
    done = said["openapi_extra"]["responses"]["200"]
    done["content"] = {"text/event-stream": done["content"].pop("application/json")}
    said["response_class"] = Response
    return said


@router.get(
    "/{task_id}/output",
    summary="What the task emitted, after a cursor",
    **described(OutputOut, errors=(404, 422)),
)
async def output(
    task_id: str, who: Reader, after: After = None, wait: Wait = 0.0
) -> Response:
    reader = who.manager.output.stream.reader(id_of(task_id), place_of(after))
    await reader.check()
    page = await reader.next(wait)
    return answer(_page(page))


@router.get(
    "/{task_id}/stream",
    summary="The same as server-sent events, until the task has ended",
    **_as_events(),
)
async def stream(
    task_id: str,
    who: Reader,
    after: After = None,
    cancel_on_disconnect: Cancels = False,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    if cancel_on_disconnect:
        who.manager.access.keys.require(who.key, Scope.SUBMIT, None)
    reader = who.manager.output.stream.reader(
        id_of(task_id), place_of(last_event_id or after)
    )
    await reader.check()
    if cancel_on_disconnect:
        check_owner((await who.manager.tasks.get(task_id)).spec, who.only_of)
    return StreamingResponse(
        _events(who.manager.tasks, reader, task_id, cancel_on_disconnect),
        media_type="text/event-stream",
        headers=EVENTS,
    )


async def _events(
    tasks: Tasks, reader: OutputReader, task_id: str, cancels: bool
) -> AsyncIterator[bytes]:
    try:
        # At once, so that who follows knows that there is something to follow.
        page = await reader.next(0.0)
        while page.ended is None:
            yield _told(page) or b": still here\n\n"
            if reader.is_closing:
                return  # without an end: who follows comes again
            page = await reader.next(HEARTBEAT_S)
        yield b"event: end\ndata: %b\n\n" % _encode(render.brief(page.ended))
    except (asyncio.CancelledError, GeneratorExit):
        if cancels and not reader.is_closing:
            tasks.give_up(task_id)
        raise


def _told(page: OutputPage) -> bytes:
    said = b""
    if (void := _void(page)) is not None:
        said += b"event: attempt\ndata: %b\n\n" % _encode(void)
    if page.skipped:
        lost = SkippedOut(page.skipped)
        said += b"event: skipped\ndata: %b\n\n" % _encode(lost)
    return said + b"".join(
        b"id: %d:%d\ndata: %b\n\n" % (page.attempt, number, value)
        for number, value in enumerate(page.values, page.first)
    )


def _page(page: OutputPage) -> OutputOut:
    pieces = [
        PieceOut(attempt=page.attempt, number=number, value=msgspec.Raw(value))
        for number, value in enumerate(page.values, page.first)
    ]
    return OutputOut(
        pieces=pieces,
        cursor=f"{page.end[0]}:{page.end[1]}",
        done=page.ended is not None,
        restarted=_void(page),
        skipped=page.skipped,
        task=render.brief(page.ended) if page.ended else None,
    )


def _void(page: OutputPage) -> RestartedOut | None:
    return None if page.cut is None else RestartedOut(page.attempt, page.cut)


def place_of(text: str | None) -> Place:
    """The place that a cursor stands for.

    Raises:
        InvalidField: it is none.
    """
    if text is None:
        return 0, 0
    parts = _CURSOR.fullmatch(text)
    if parts is None:
        raise InvalidField(
            "after must be a cursor from an earlier answer", field="after"
        )
    return int(parts[1]), int(parts[2])

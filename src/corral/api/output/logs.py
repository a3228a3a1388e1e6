"""/tasks/{id}/logs: what a task printed, in pages or as a stream of events."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from corral.api.body import answer
from corral.api.openapi import described
from corral.api.tasks.render import progress_out, status_of
from corral.api.tasks.routes import Reader, Wait, id_of
from corral.errors import InvalidField
from corral.manager.output.logs import LogPage, NumberedLine, Place, TaskLogs
from corral.wire.output import LogLine, LogOutput

router = APIRouter(prefix="/tasks", tags=["tasks"])
HEARTBEAT_S = 15.0
START: Place = (0, 0)
_CURSOR = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_encode = msgspec.json.Encoder().encode
After = Annotated[str | None, Query(description="a cursor: only what came after it")]
Attempt = Annotated[int | None, Query(ge=1, le=1 << 30, description="of this one only")]
Tail = Annotated[int | None, Query(ge=0, le=1 << 30, description="the last lines only")]
Known = Annotated[
    float | None, Query(description="waits for progress other than this as well")
]


class LogLineOut(LogLine, frozen=True, kw_only=True):
    """`at` is seconds since the epoch here."""

    at: float  # type: ignore[assignment]


class LogsOut(LogOutput, frozen=True, kw_only=True):
    lines: list[LogLineOut]  # type: ignore[assignment]


def _as_events() -> dict[str, Any]:
    """As other routes are described, but with events where those have JSON."""
    said = described(LogLineOut, errors=(404, 422))
    done = said["openapi_extra"]["responses"]["200"]
    done["content"] = {"text/event-stream": done["content"].pop("application/json")}
    said["response_class"] = Response
    return said


@router.get(
    "/{task_id}/logs",
    summary="What the task printed, after a cursor",
    **described(LogsOut, errors=(404, 422)),
)
async def logs(
    task_id: str,
    who: Reader,
    after: After = None,
    wait: Wait = 0.0,
    attempt: Attempt = None,
    tail: Tail = None,
    progress: Known = None,
) -> Response:
    following = who.manager.output.logs
    place = await _start(following, id_of(task_id), after, attempt, tail)
    page = await following.wait(task_id, place, attempt, wait, progress)
    return answer(
        LogsOut(
            lines=[_line(line) for line in page.lines],
            cursor=_cursor(page.end),
            done=page.is_last,
            status=status_of(page.task.state),
            progress=progress_out(page.progress),
        )
    )


@router.get(
    "/{task_id}/logs/stream",
    summary="The same as server-sent events, until the task has ended",
    **_as_events(),
)
async def stream(
    task_id: str,
    who: Reader,
    after: After = None,
    attempt: Attempt = None,
    tail: Tail = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    following = who.manager.output.logs
    after = last_event_id or after
    place = await _start(following, id_of(task_id), after, attempt, tail)
    first = await following.page(task_id, place, attempt)
    return StreamingResponse(
        _events(following, task_id, attempt, first),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


async def _events(
    following: TaskLogs, task_id: str, attempt: int | None, page: LogPage
) -> AsyncIterator[bytes]:
    known = -1.0
    while True:
        said = b"".join(map(_event, page.lines))
        if page.progress is not None and page.progress[0] != known:
            known = page.progress[0]
            said += b"event: progress\ndata: %b\n\n" % _encode(
                progress_out(page.progress)
            )
        if page.is_last:
            end = {"status": status_of(page.task.state)}
            yield said + b"event: end\ndata: %b\n\n" % _encode(end)
            return
        # A comment where there is nothing to say: a dead connection shows.
        yield said or b": still here\n\n"
        if following.is_closing:
            return  # without an end: who follows comes again
        page = await following.wait(task_id, page.end, attempt, HEARTBEAT_S, known)


def _line(line: NumberedLine) -> LogLineOut:
    return LogLineOut(
        attempt=line.attempt, at=line.at, stream=line.stream, text=line.text
    )


def _event(line: NumberedLine) -> bytes:
    told = _line(line)
    place = b"%d:%d" % (line.attempt, line.number)
    return b"id: %b\ndata: %b\n\n" % (place, _encode(told))


async def _start(
    following: TaskLogs,
    task_id: str,
    after: str | None,
    attempt: int | None,
    tail: int | None,
) -> Place:
    if after is not None:
        return _place(after)
    return START if tail is None else await following.tail(task_id, tail, attempt)


def _cursor(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _place(text: str) -> Place:
    parts = _CURSOR.fullmatch(text)
    if parts is None:
        raise InvalidField(
            "after must be a cursor from an earlier answer", field="after"
        )
    return int(parts[1]), int(parts[2])

"""/ws, /events/stream, /events/live: what happens, as it happens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Header, Query, Request, Response, WebSocket
from starlette.datastructures import QueryParams

from corral.api import live
from corral.api import live_model as model
from corral.api.deps import answer, manager_of
from corral.api.describe import described
from corral.api.errors import problem, status_of
from corral.api.routes.tasks import Reader, Wait
from corral.core.access.key import Key
from corral.errors import CorralError
from corral.manager.access.sessions import GOOD_S
from corral.manager.app import Manager
from corral.manager.events.filter import Detail, Face, Interest

router = APIRouter(tags=["cluster"])
_CLOSED_S = 5.0
_YES = ("1", "true", "yes")
After = Annotated[
    str | None, Query(description="the seq of an event: only what came after it")
]
Text = Annotated[str | None, Query()]


async def _wanted(
    event_type: Annotated[
        str | None, Query(alias="type", description="names of events, with commas")
    ] = None,
    task_id: Text = None,
    task_type: Text = None,
    node_id: Text = None,
    worker_id: Text = None,
    label: Annotated[list[str] | None, Query(description="key:value")] = None,
    detail: Annotated[str, Query(description="all or summary")] = Detail.ALL,
) -> Interest:
    words = (task_id, task_type, node_id, worker_id)
    asked = {"type": event_type, **dict(zip(live.WORDS, words, strict=True))}
    return live.interest_of(asked, label or (), detail)


async def _admitted(
    request: Request,
    ticket: Annotated[str | None, Query(description="in place of a key")] = None,
) -> Key:
    return live.admit(manager_of(request), request, "GET /events/stream")


Wanted = Annotated[Interest, Depends(_wanted)]
Admitted = Annotated[Key, Depends(_admitted)]


def _as_events() -> dict[str, Any]:
    """As other routes are described, but with events where those have JSON."""
    said = described(model.LiveEventOut, errors=(422,))
    done = said["openapi_extra"]["responses"]["200"]
    done["content"] = {"text/event-stream": done["content"].pop("application/json")}
    said["response_class"] = Response
    return said


@router.post(
    "/events/ticket",
    summary="What a browser opens /ws or /events/stream with",
    **described(model.TicketOut, status=201),
)
async def ticket(who: Reader) -> Response:
    text = who.manager.live.tickets.issue(who.key)
    return answer(model.TicketOut(text, GOOD_S), 201)


@router.get(
    "/events/live",
    summary="What happened after a seq, waited for",
    **described(model.LivePageOut, errors=(422,)),
)
async def page(
    who: Reader, wanted: Wanted, after: After = None, wait: Wait = 0.0
) -> Response:
    number = live.number_of(after)
    broadcast = who.manager.live.broadcast
    texts, last = await broadcast.page(wanted, number, wait)
    body = b'{"events":[%b],"next":%d}' % (b",".join(texts), last)
    return Response(body, media_type="application/json")


@router.get(
    "/events/stream",
    summary="What happens, as server-sent events",
    **_as_events(),
)
async def stream(
    request: Request,
    key: Admitted,
    wanted: Wanted,
    after: After = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    broadcast = manager_of(request).live.broadcast
    number = live.number_of(last_event_id or after)
    ip = live.ip_of(request)
    one = broadcast.listen(wanted, Face.STREAM, key, ip, number)
    return live.EventStream(broadcast, one)


@router.websocket("/ws")
async def listen(socket: WebSocket) -> None:
    manager: Manager = socket.app.state.manager
    broadcast = manager.live.broadcast
    query = socket.query_params
    try:
        key = live.admit(manager, socket, "WS /ws")
        is_batched = query.get("batch", "").lower() in _YES
        face = Face.BATCH if is_batched else Face.MESSAGE
        wanted, number = _asked(query), live.number_of(query.get("after"))
        one = broadcast.listen(wanted, face, key, live.ip_of(socket), number)
    except CorralError as error:
        await _refuse(socket, error)
        return
    await live.serve_socket(socket, broadcast, one)


def _asked(query: QueryParams) -> Interest:
    detail = query.get("detail", Detail.ALL)
    return live.interest_of(query, query.getlist("label"), detail)


async def _refuse(socket: WebSocket, error: CorralError) -> None:
    """In the one error shape, where the server can; else by the code alone."""
    status = status_of(error)
    if "websocket.http.response" not in socket.scope.get("extensions", {}):
        await socket.close(4000 + status, error.message)
        return
    said = problem(
        cast(Request, socket), status, error.code, error.message, error.details
    )
    await socket.send_denial_response(said)
    # The server takes a call that returns before its connection is closed for a
    # mistake, and logs it: its words are that it was opened, refused, closed.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSED_S):
            for _ in range(3):
                await socket._receive()

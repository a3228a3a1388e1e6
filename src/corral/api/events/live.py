"""/ws, /events/stream, /events/live: what happens, as it happens.

Who may listen, to what, and how events are sent until one side has enough. What an
event says, and when a slow reader is let go, is decided in `manager/events`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Header, Query, Request, Response, WebSocket
from fastapi.responses import StreamingResponse
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from corral.api.body import answer
from corral.api.caller import bearer, manager_of, note_denial
from corral.api.errors import problem, status_of
from corral.api.openapi import described
from corral.api.tasks.routes import Reader, Wait
from corral.core.access import key as keys
from corral.core.access.key import Key
from corral.errors import (
    AuthError,
    CorralError,
    Forbidden,
    InvalidField,
    Unauthenticated,
)
from corral.manager.access.sessions import GOOD_S
from corral.manager.app import Manager
from corral.manager.events.broadcast import Broadcast
from corral.manager.events.filter import Detail, EventFilter, EventFormat
from corral.manager.events.listener import CloseReason, Listener
from corral.manager.events.ring import told
from corral.wire.events import LiveEvent, LivePage

router = APIRouter(tags=["cluster"])
HEARTBEAT_S = 15.0
_LARGEST = 1 << 63
_TYPES = re.compile(r"[a-z_]{1,64}(,[a-z_]{1,64}){0,31}")
_WORD = re.compile(r"[^\x00]{1,256}")
WORDS = ("task_id", "task_type", "node_id", "worker_id")
_CODES = {CloseReason.SLOW: 1013, CloseReason.KEY: 1008, CloseReason.STOP: 1012}
_CLOSED_S = 5.0
_YES = ("1", "true", "yes")
After = Annotated[
    str | None, Query(description="the seq of an event: only what came after it")
]
Text = Annotated[str | None, Query()]


class TicketOut(Struct):
    """Good once, for `?ticket=` of /ws or /events/stream."""

    ticket: str
    expires_in_s: float


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
) -> EventFilter:
    words = (task_id, task_type, node_id, worker_id)
    asked = {"type": event_type, **dict(zip(WORDS, words, strict=True))}
    return interest_of(asked, label or (), detail)


async def _admitted(
    request: Request,
    ticket: Annotated[str | None, Query(description="in place of a key")] = None,
) -> Key:
    return admit(manager_of(request), request, "GET /events/stream")


Wanted = Annotated[EventFilter, Depends(_wanted)]
Admitted = Annotated[Key, Depends(_admitted)]


def _as_events() -> dict[str, Any]:
    """As other routes are described, but with events where those have JSON."""
    said = described(LiveEvent, errors=(422,))
    done = said["openapi_extra"]["responses"]["200"]
    done["content"] = {"text/event-stream": done["content"].pop("application/json")}
    said["response_class"] = Response
    return said


@router.post(
    "/events/ticket",
    summary="What a browser opens /ws or /events/stream with",
    **described(TicketOut, status=201),
)
async def ticket(who: Reader) -> Response:
    text = who.manager.events.tickets.issue(who.key)
    return answer(TicketOut(text, GOOD_S), 201)


@router.get(
    "/events/live",
    summary="What happened after a seq, waited for",
    **described(LivePage, errors=(422,)),
)
async def page(
    who: Reader, wanted: Wanted, after: After = None, wait: Wait = 0.0
) -> Response:
    number = number_of(after)
    broadcast = who.manager.events.broadcast
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
    broadcast = manager_of(request).events.broadcast
    number = number_of(last_event_id or after)
    ip = ip_of(request)
    one = broadcast.listen(wanted, EventFormat.STREAM, key, ip, number)
    return EventStream(broadcast, one)


@router.websocket("/ws")
async def listen(socket: WebSocket) -> None:
    manager: Manager = socket.app.state.manager
    broadcast = manager.events.broadcast
    query = socket.query_params
    try:
        key = admit(manager, socket, "WS /ws")
        is_batched = query.get("batch", "").lower() in _YES
        face = EventFormat.BATCH if is_batched else EventFormat.MESSAGE
        wanted, number = _asked(query), number_of(query.get("after"))
        one = broadcast.listen(wanted, face, key, ip_of(socket), number)
    except CorralError as error:
        await _refuse(socket, error)
        return
    await serve_socket(socket, broadcast, one)


def _asked(query: QueryParams) -> EventFilter:
    detail = query.get("detail", Detail.ALL)
    return interest_of(query, query.getlist("label"), detail)


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


def admit(manager: Manager, asks: HTTPConnection, what: str) -> keys.Key:
    """Whose key or ticket this is.

    Raises:
        AuthError: nobody's, or it may not read, or it asks too often.
    """
    ip = ip_of(asks)
    found: keys.Key | None = None
    try:
        ticket = asks.query_params.get("ticket")
        if ticket is not None:
            found = manager.events.tickets.use(ticket)
            if not manager.access.keys.is_good(found):
                raise Unauthenticated("the key of this ticket was revoked or is over")
        else:
            text = bearer(asks.headers.get("authorization"))
            found = manager.access.keys.authenticate(text, ip)
        manager.access.keys.throttle(found)
        manager.access.keys.require(found, keys.Scope.READ)
        check_origin(manager, asks)
    except AuthError as error:
        request_id = asks.scope.get("corral_request_id", "")
        note_denial(manager, found, what, error, ip, request_id)
        raise
    return found


def ip_of(asks: HTTPConnection) -> str:
    return asks.client.host if asks.client else ""


def check_origin(manager: Manager, asks: HTTPConnection) -> None:
    """A page of another host must not listen with what this browser may see.

    Raises:
        Forbidden: it is of another host.
    """
    origin = asks.headers.get("origin")
    if origin is None or origin in manager.config.live.origins:
        return
    # That the name is one of ours is known by now: see `api/site.py`.
    host = asks.headers.get("host", "").lower()
    if not host or urlsplit(origin).netloc.lower() != host:
        raise Forbidden(
            "a page of another origin may not listen; CORRAL_EVENT_ORIGINS lets it"
        )


def interest_of(
    asked: Mapping[str, str | None], labels: Sequence[str], detail: str
) -> EventFilter:
    """What is asked for: a type, and one of each of WORDS at most.

    Raises:
        InvalidField: a word that means nothing.
    """
    types = asked.get("type")
    if types is not None and not _TYPES.fullmatch(types):
        raise InvalidField("type must be names of events, like a,b", field="type")
    words = {name: asked.get(name) for name in WORDS}
    for field, word in words.items():
        if word is not None and not _WORD.fullmatch(word):
            raise InvalidField(f"{field} must be 1-256 characters", field=field)
    if detail not in tuple(Detail):
        raise InvalidField("detail must be all or summary", field="detail")
    return EventFilter(
        frozenset(types.split(",")) if types else frozenset(),
        labels=frozenset(map(_label, labels)),
        detail=Detail(detail),
        **words,
    )


def number_of(text: str | None) -> int | None:
    """The number that a reader says it has seen.

    Raises:
        InvalidField: it is none.
    """
    if text is None or text == "":
        return None
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not is_number or int(text) >= _LARGEST:
        raise InvalidField("after must be the seq of an event", field="after")
    return int(text)


def _label(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon or not _WORD.fullmatch(text):
        raise InvalidField("label must read key:value", field="label")
    return key, value


async def _until_one_ends(*ways: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# sockets -----------------------------------------------------------------------
async def serve_socket(socket: WebSocket, broadcast: Broadcast, one: Listener) -> None:
    """Send frames until one side has enough; it says why if it is ours."""
    try:
        await socket.accept()
        await _until_one_ends(_talk(socket, one), _hear(socket), one.gone.wait())
    finally:
        broadcast.leave(one)
    if one.why is None:
        return
    try:
        async with asyncio.timeout(broadcast.config.farewell_s):
            await socket.close(_CODES[one.why], one.why)
    except TimeoutError:
        _hang_up(socket)
    except (RuntimeError, WebSocketDisconnect):
        pass


async def _talk(socket: WebSocket, one: Listener) -> None:
    for parts in one.opening:
        for part in parts:
            await socket.send_text(str(part))
    while parts := await one.next():
        for part in parts:
            await socket.send({"type": "websocket.send", "text": part})


async def _hear(socket: WebSocket) -> None:
    """Nothing is expected but an end."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def _hang_up(socket: WebSocket) -> None:
    """One who reads nothing at all would never get our last word: end the connection,
    where the server lets us, instead of keeping what waits for it.
    """
    server = getattr(socket._receive, "__self__", None)
    abort = getattr(getattr(server, "transport", None), "abort", None)
    if abort is not None:
        abort()


# streams -----------------------------------------------------------------------
class EventStream(StreamingResponse):
    """Server-sent events for one listener."""

    def __init__(self, broadcast: Broadcast, one: Listener) -> None:
        headers = {"X-Accel-Buffering": "no"}
        super().__init__(_nothing(), 200, headers, "text/event-stream")
        self._broadcast = broadcast
        self._one = one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        one, head = self._one, self.raw_headers
        try:
            start = {"type": "http.response.start", "status": 200, "headers": head}
            await send(start)
            await _until_one_ends(self._talk(send), _gone(receive), one.gone.wait())
        finally:
            self._broadcast.leave(one)
        if one.why is not None:
            # Who reads nothing at all does not get it, and is cut off.
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(self._broadcast.config.farewell_s):
                    await self._part(send)

    async def _talk(self, send: Send) -> None:
        for parts in self._one.opening:
            await _send(send, *parts)
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    parts = await self._one.next()
            except TimeoutError:
                # A dead connection shows.
                parts = (b": still here\n\n",)
            if not parts:
                return
            await _send(send, *parts)

    async def _part(self, send: Send) -> None:
        last = b""
        if self._one.why is not CloseReason.STOP:
            reason = {"reason": self._one.why}
            text = told("dropped", self._broadcast.now(), None, reason)
            last = b"data: %b\n\n" % text
        await send({"type": "http.response.body", "body": last, "more_body": False})


async def _send(send: Send, *parts: str | bytes) -> None:
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _nothing() -> AsyncIterator[bytes]:
    """What the base class sends; here it is sent otherwise."""
    yield b""

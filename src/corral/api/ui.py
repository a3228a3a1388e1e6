"""/ui: the dashboard's files, and the sessions of those who look at it.

The files are for everybody and know nothing; what they show they ask the API for.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from msgspec import Struct
from starlette.responses import RedirectResponse
from starlette.routing import Route

from corral import __version__
from corral.api.body import answer, decode
from corral.api.caller import Caller, caller, key_of, manager_of
from corral.api.openapi import described
from corral.core.access.key import Key, Scope
from corral.dashboard.asset import Asset, assets
from corral.errors import (
    AuthError,
    Conflict,
    NotFound,
    TooLarge,
    Unauthenticated,
)
from corral.manager.access.sessions import LIFE_S, LINK_S
from corral.manager.app import Manager
from corral.wire.access import DashboardLink

router = APIRouter(prefix="/ui", tags=["dashboard"])
_reader = caller(Scope.READ)
Reader = Annotated[Caller, Depends(_reader)]
_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEAD: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"content-security-policy", _POLICY.encode()),
)
_SIGN_IN_BYTES = 4 << 10
_FOREVER = "public, max-age=31536000, immutable"


class SignIn(Struct, forbid_unknown_fields=True):
    """`link` is what a link of `corral dashboard` ends in; else send a key.

    Without `name` a link signs nobody in: the answer tells whose it is, and whoever
    looks can say whether that is meant. Anybody can send a link of their own, and see
    what its visitor then does in their name.
    """

    link: str | None = None
    name: str | None = None


class SessionOut(Struct):
    """Who looks: null where nobody is signed in. `role` is what they may."""

    name: str | None
    role: str | None
    expires_at: datetime | None
    version: str
    cluster: str | None = None


class SignedOut(Struct):
    message: str


async def _signing_in(request: Request) -> tuple[Caller, bool]:
    """Who it would be, and whether that was said to be meant."""
    has_key = "authorization" in request.headers
    said = SignIn() if has_key else decode(await _small_body(request), SignIn)
    if said.link is None:
        return await _reader(request), True
    manager = manager_of(request)
    links = manager.access.sessions.links
    key = links.look(said.link)
    if not manager.access.keys.is_good(key):
        raise Unauthenticated("the key of this link was revoked or is over")
    if said.name is not None:
        if said.name != (key.name or key.id):
            raise Conflict("this link signs in as somebody else")
        links.use(said.link)
    ip = request.client.host if request.client else ""
    request_id = request.scope.get("corral_request_id", "")
    return Caller(manager, key, ip, request_id), said.name is not None


async def _small_body(request: Request) -> bytes:
    """Of somebody who is nobody yet: not more than a link takes."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _SIGN_IN_BYTES:
            raise TooLarge(
                f"at most {_SIGN_IN_BYTES} bytes are taken to sign in",
                limit_bytes=_SIGN_IN_BYTES,
            )
    return bytes(body)


@router.get(
    "/session", summary="Who is signed in?", **described(SessionOut, is_open=True)
)
async def session(request: Request) -> Response:
    manager = manager_of(request)
    cookie = request.cookies.get(manager.access.sessions.cookie)
    if cookie is None and not manager.config.is_open:
        return answer(SessionOut(None, None, None, __version__))
    try:
        key = key_of(manager, request, "")
        until = manager.access.sessions.until(cookie) if cookie is not None else None
    except AuthError:
        return answer(SessionOut(None, None, None, __version__))
    return answer(_told(manager, key, until))


def _told(manager: Manager, key: Key, until: datetime | None) -> SessionOut:
    name, cluster = key.name or key.id, manager.config.cluster_name
    return SessionOut(name, str(key.scope), until, __version__, cluster)


@router.post(
    "/session",
    summary="Begin a session: a cookie in place of a key",
    **described(
        SessionOut,
        body=SignIn,
        status=201,
        errors=(409, 413),
        example={"link": "what follows #link=", "name": "ann"},
    ),
)
async def sign_in(
    request: Request, asked: Annotated[tuple[Caller, bool], Depends(_signing_in)]
) -> Response:
    who, is_meant = asked
    if not is_meant:
        return answer(_told(who.manager, who.key, None))
    word, until = who.manager.access.sessions.begin(who.key)
    said = answer(_told(who.manager, who.key, until), 201)
    said.set_cookie(
        who.manager.access.sessions.cookie,
        word,
        max_age=int(LIFE_S),
        secure=request.url.scheme == "https" or request.app.state.site.is_https,
        httponly=True,
        samesite="strict",
    )
    who.note("session.begin", who.key.id)
    return said


@router.delete("/session", summary="End the session", **described(SignedOut))
async def sign_out(request: Request, who: Reader) -> Response:
    name = who.manager.access.sessions.cookie
    said = answer(SignedOut("signed out"))
    if word := request.cookies.get(name):
        await who.manager.access.sessions.end(word)
        said.delete_cookie(name, httponly=True, samesite="strict")
        who.note("session.end", who.key.id)
    return said


@router.post(
    "/links",
    summary="A link that signs in once, for a moment",
    **described(DashboardLink, status=201),
)
async def link(who: Reader) -> Response:
    ticket = who.manager.access.sessions.links.issue(who.key)
    who.note("session.link", who.key.id)
    # Behind a '#': browsers keep that to themselves, so that no log has it.
    return answer(DashboardLink(path=f"/ui/#link={ticket}", expires_in_s=LINK_S), 201)


async def _page(request: Request) -> Response:
    """Every address under /ui is the one page, which looks what it is to show."""
    return _sent(request, assets().page, "no-cache")


async def _file(request: Request) -> Response:
    found = assets()
    name: str = request.path_params["name"]
    file = found.files.get(name)
    if file is None or request.path_params["version"] != found.version:
        raise NotFound("no such file of this version: load the page again")
    return _sent(request, file, _FOREVER)


def _sent(request: Request, file: Asset, cached: str) -> Response:
    request.scope["corral_safe"] = _HEAD
    headers = {"ETag": file.etag, "Cache-Control": cached, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(file.packed, headers=headers, media_type=file.media_type)
    return Response(file.body, headers=headers, media_type=file.media_type)


async def _home(request: Request) -> Response:
    return RedirectResponse("/ui/", 307)


def install(app: FastAPI) -> None:
    """After the routes of sessions, which begin alike."""
    app.router.routes.extend(
        (
            Route("/", _home),
            Route("/ui", _home),
            Route("/ui/a/{version}/{name:path}", _file),
            Route("/ui/{rest:path}", _page),
        )
    )

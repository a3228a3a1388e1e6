"""Whose page asks, and by which name: what every request passes before its route.

A browser sends requests to this machine for any page that wants it to, and anybody can
make a name of theirs lead here. So the name that was called must be one of ours, and
what changes something must not come from another site's page. Programs send none of the
headers that are looked at, and notice nothing. Who may do what is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.errors import problem, status_of
from corral.errors import CorralError, Forbidden, UnsupportedType
from corral.trust import is_address, is_loopback_name, name_of_host

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
# What a page may send to any site without asking it first; no type at all, too.
_NEVER_ASKED = frozenset(
    {b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"}
)
_DENIED = 4403
_MOST_NAMES = 1000
_TLS_ONLY = (b"strict-transport-security", b"max-age=31536000")
_Headers = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class SiteRules:
    """Which names are ours beside those of loopback, all in small letters.

    A name that begins with a dot stands for all below it. `any_address`: also every IP
    address, which nobody can make lead elsewhere. `origins` are addresses of our own
    pages, where a proxy calls the manager by another name. `is_https`: people reach it
    over TLS, whatever reaches the manager.
    """

    names: frozenset[str] = frozenset()
    any_address: bool = False
    origins: frozenset[str] = frozenset()
    is_https: bool = False

    def allow(self, name: str) -> bool:
        if is_loopback_name(name) or name in self.names:
            return True
        if is_address(name):
            return self.any_address
        labels = name.split(".")
        above = (f".{'.'.join(labels[n:])}" for n in range(1, len(labels)))
        return any(parent in self.names for parent in above)


class SiteGuard:
    """Wraps the application, inside of what gives requests their ids."""

    def __init__(self, app: ASGIApp, rules: SiteRules) -> None:
        self._app = app
        self._rules = rules
        # Hosts as they were sent and found good: nearly every request is one lookup.
        self._good: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        error = None if kind == "lifespan" else self._fault(scope)
        if error is None:
            await self._app(scope, receive, send)
        elif kind == "websocket":
            reason = error.message[:100]
            await send({"type": "websocket.close", "code": _DENIED, "reason": reason})
        else:
            request = Request(scope)
            status = status_of(error)
            said = problem(request, status, error.code, error.message, error.details)
            await said(scope, receive, send)

    def _fault(self, scope: Scope) -> CorralError | None:
        headers: _Headers = dict(scope["headers"])
        is_open = scope["app"].state.manager.config.is_open
        # No page can send this to another site. It says nothing of a name that was
        # made to lead here, where keys are not asked for: whoever comes is let in.
        has_key = headers.get(b"authorization", b"")[:7].lower() == b"bearer "
        host = headers.get(b"host", b"")
        if host not in self._good and not self._is_ours(host):
            if is_open or not has_key:
                return _not_ours(host)
        elif scope.get("scheme") == "https":
            self._ask_for_tls(scope, host)
        if scope["type"] == "websocket":
            return None  # its route looks at the origin, see `events/live.py`
        if scope["method"] in _READS:
            return self._read_fault(scope, headers) if is_open else None
        return self._change_fault(scope, headers, has_key)

    def _is_ours(self, host: bytes) -> bool:
        # Browsers always send one.
        if host and not self._rules.allow(name_of_host(host.decode("latin-1"))):
            return False
        if len(self._good) < _MOST_NAMES:
            self._good.add(host)
        return True

    @staticmethod
    def _ask_for_tls(scope: Scope, host: bytes) -> None:
        """Browsers keep to it for every port of a name: not for localhost."""
        if not is_loopback_name(name_of_host(host.decode("latin-1"))):
            scope.get("corral_headers", []).append(_TLS_ONLY)

    def _read_fault(self, scope: Scope, headers: _Headers) -> CorralError | None:
        """Asked where there are no keys: then an answer says all there is to say."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin in scope["app"].state.manager.config.live.origins:
            return None
        # A link to our pages may be followed; the page that has it sees nothing.
        is_page = scope["path"] == "/" or scope["path"].startswith("/ui")
        if is_page and headers.get(b"sec-fetch-mode") == b"navigate":
            return None
        return self._origin_fault(headers)

    def _change_fault(
        self, scope: Scope, headers: _Headers, has_key: bool
    ) -> CorralError | None:
        if error := self._origin_fault(headers):
            return error
        # Only a POST can be sent without asking first.
        if has_key or scope["method"] != "POST" or not _has_body(headers):
            return None
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        is_page = b"origin" in headers or b"sec-fetch-site" in headers
        if kind not in _NEVER_ASKED and (kind or not is_page):
            return None
        if _is_for_app(scope):
            return None
        return UnsupportedType(
            "send JSON with the header 'Content-Type: application/json' (curl: -H "
            "'Content-Type: application/json'); a key in the header Authorization "
            "makes it needless",
            content_type=kind.decode("latin-1")[:100],
        )

    def _origin_fault(self, headers: _Headers) -> CorralError | None:
        site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
        if site == b"same-origin" or (site is None and origin is None):
            return None
        host = headers.get(b"host", b"")
        is_ours = origin is None or self._is_own_page(origin, host)
        if is_ours and (site is None or site == b"none"):
            return None
        said = (origin or b"").decode("latin-1")[:200]
        return Forbidden(
            "a page of another site may not ask this; where a proxy calls the manager "
            "by another name than people do, name theirs with CORRAL_MANAGER_URL",
            origin=said,
        )

    def _is_own_page(self, origin: bytes, host: bytes) -> bool:
        text = origin.decode("latin-1").lower()
        if text in self._rules.origins:
            return True
        try:
            parts, called = urlsplit(text), urlsplit(f"//{host.decode('latin-1')}")
            usual = {"http": 80, "https": 443}.get(parts.scheme)
            ours = (called.hostname, called.port or usual)
            return bool(usual) and (parts.hostname, parts.port or usual) == ours
        except ValueError:
            return False


def _not_ours(host: bytes) -> Forbidden:
    name = name_of_host(host.decode("latin-1"))[:200]
    return Forbidden(
        f"this manager does not go by the name {name!r}: call it by its address, or "
        f"let that name in with CORRAL_ALLOWED_HOSTS={name}",
        host=name,
    )


def _has_body(headers: _Headers) -> bool:
    length = headers.get(b"content-length", b"0")
    return length != b"0" or b"transfer-encoding" in headers


def _is_for_app(scope: Scope) -> bool:
    """What an app behind the gateway takes is for it to say."""
    name = scope["path"].removeprefix("/").partition("/")[0]
    return scope["app"].state.manager.gateway.apps.find(name) is not None

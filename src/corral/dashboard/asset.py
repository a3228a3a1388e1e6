"""The files of the dashboard, read once, under a name that changes with them."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent / "static"
PAGE = "index.html"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# What every page needs: fetched at once, not one after the other as they are found.
_EARLY = ("core", "parts", "vendor")


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent; `packed` with gzip."""

    body: bytes
    packed: bytes
    media_type: str
    etag: str


@dataclass(frozen=True, slots=True)
class Assets:
    """All files by their name; `page` is the one that shows them."""

    version: str
    files: dict[str, Asset]
    page: Asset


@cache
def assets() -> Assets:
    """The files of this version, whose hash is in the path they are asked for by."""
    found = dict(_read())
    page = found.pop(PAGE)
    told = hashlib.sha256(page)
    for name, body in found.items():
        told.update(name.encode() + b"\0" + body + b"\0")
    version = told.hexdigest()[:12]
    base = f"/ui/a/{version}"
    early = "\n".join(
        f'<link rel="modulepreload" href="{base}/{escape(name)}">'
        for name in found
        if name.endswith(".js") and name.partition("/")[0] in _EARLY
    )
    text = page.decode().replace("{base}", base).replace("{early}", early)
    files = {name: _asset(name, body) for name, body in found.items()}
    return Assets(version, files, _asset(PAGE, text.encode()))


def _read() -> Iterator[tuple[str, bytes]]:
    for path in sorted(ROOT.rglob("*")):
        if path.suffix in _TYPES:
            yield path.relative_to(ROOT).as_posix(), path.read_bytes()


def _asset(name: str, body: bytes) -> Asset:
    etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    packed = gzip.compress(body, 6, mtime=0)
    return Asset(body, packed, _TYPES[Path(name).suffix], etag)

"""/objects: content-addressed blobs. Users put them, users and nodes get them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Struct

from corral.api.deps import Caller, answer, caller
from corral.api.describe import described
from corral.core.key import Scope
from corral.errors import NotFound
from corral.store.objects import check_digest

router = APIRouter()
BINARY = "application/octet-stream"
_BLOB = {BINARY: {"schema": {"type": "string", "format": "binary"}}}


Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
Fetcher = Annotated[Caller, Depends(caller(Scope.READ, Scope.NODE))]


class ObjectOut(Struct):
    """An object that is stored now."""

    digest: str
    size: int


def _described(is_sent: bool = False, **more: Any) -> dict[str, Any]:
    """As other routes are, but with bytes where those have JSON."""
    errors = (404, 413, 422) if is_sent else (404, 422)
    said = described(ObjectOut, errors=errors, **more)
    extra = said["openapi_extra"]
    if is_sent:
        extra["requestBody"] = {"required": True, "content": _BLOB}
    else:
        extra["responses"]["200"]["content"] = _BLOB
        said["response_class"] = Response
    return said


@router.put(
    "/objects/{digest}",
    summary="Store bytes under their SHA-256",
    tags=["objects"],
    **_described(is_sent=True, status=201),
)
async def put(request: Request, digest: str, who: Operator) -> Response:
    # Before the body is read: a wrong address should not cost the transfer.
    check_digest(digest)
    objects = who.manager.objects
    was_known = await objects.exists(digest)
    data = await request.body()
    await objects.put(data, digest)
    who.note("object.put", digest, size=len(data))
    return answer(ObjectOut(digest, len(data)), 200 if was_known else 201)


@router.get(
    "/objects/{digest}",
    summary="The bytes of an object",
    tags=["objects"],
    **_described(),
)
async def get(digest: str, who: Fetcher) -> Response:
    return Response(await who.manager.objects.get(digest), media_type=BINARY)


@router.head(
    "/objects/{digest}",
    summary="Is an object there, and how large?",
    tags=["objects"],
    **_described(),
)
async def head(digest: str, who: Fetcher) -> Response:
    size = await who.manager.objects.size(digest)
    if size is None:
        raise NotFound(f"no object {digest}", digest=digest)
    return Response(media_type=BINARY, headers={"Content-Length": str(size)})

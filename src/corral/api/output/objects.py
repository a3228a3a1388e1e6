"""/objects: content-addressed blobs. Users and nodes put them and get them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import Struct

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.errors import BadRequest, InvalidField

router = APIRouter()
MAX_ASKED = 10_000
_LENGTH = 4
BINARY = "application/octet-stream"
_BLOB = {BINARY: {"schema": {"type": "string", "format": "binary"}}}


Submitter = Annotated[Caller, Depends(caller(Scope.SUBMIT))]
Sender = Annotated[Caller, Depends(caller(Scope.SUBMIT, Scope.NODE))]
Fetcher = Annotated[Caller, Depends(caller(Scope.READ, Scope.NODE))]
Kind = Annotated[
    Literal["code"] | None,
    Query(alias="as", description="Only if it was sent to be run."),
]


class ObjectOut(Struct):
    """An object that is stored now."""

    digest: str
    size: int


class ObjectsOut(Struct):
    """Objects that are stored now, in the order they came."""

    digests: list[str]
    size: int


class MissingIn(Struct, forbid_unknown_fields=True):
    """With `sizes`, an object of another size counts as missing: it is damaged."""

    digests: list[str]
    sizes: list[int] = []


class MissingOut(Struct):
    missing: list[str]


def _described(is_sent: bool = False, **more: Any) -> dict[str, Any]:
    """As other routes are, but with bytes where those have JSON."""
    errors = (404, 413, 422) if is_sent else (404, 422)
    said = described(more.pop("kind", ObjectOut), errors=errors, **more)
    extra = said["openapi_extra"]
    if is_sent:
        extra["requestBody"] = {"required": True, "content": _BLOB}
    else:
        extra["responses"]["200"]["content"] = _BLOB
        said["response_class"] = Response
    return said


@router.put(
    "/objects/{digest}",
    summary="Store code, or other bytes, under their SHA-256",
    tags=["objects"],
    **_described(is_sent=True, status=201),
)
async def put(request: Request, digest: str, who: Submitter) -> Response:
    # Before the body is read: a wrong address should not cost the transfer.
    objects = who.manager.output.objects
    was_known = await objects.expect(digest)
    data = await request.body()
    await objects.put_code(data, digest, who.key.name)
    who.note("object.put", digest, size=len(data))
    return answer(ObjectOut(digest, len(data)), 200 if was_known else 201)


@router.post(
    "/objects/missing",
    summary="Which of these objects are not stored",
    tags=["objects"],
    **described(
        MissingOut, body=MissingIn, errors=(400, 422), example={"digests": ["0" * 64]}
    ),
)
async def missing(request: Request, who: Sender) -> Response:
    said = await read(request, MissingIn)
    if len(said.digests) > MAX_ASKED:
        raise InvalidField(
            f"at most {MAX_ASKED} digests in one request", field="digests"
        )
    found = await who.manager.output.objects.missing(said.digests, said.sizes)
    return answer(MissingOut(found))


@router.post(
    "/objects",
    summary="Store several: before each its length, four bytes, the highest first",
    tags=["objects"],
    **_described(is_sent=True, status=201, kind=ObjectsOut),
)
async def put_all(request: Request, who: Sender) -> Response:
    blobs = _split(await request.body())
    digests = await who.manager.output.objects.put_all(blobs)
    size = sum(map(len, blobs))
    who.note("object.put_all", f"{len(blobs)} objects", size=size)
    return answer(ObjectsOut(digests, size), 201)


def _split(body: bytes) -> list[bytes]:
    blobs, at = [], 0
    while at < len(body):
        start = at + _LENGTH
        at = start + int.from_bytes(body[at:start], "big")
        if start > len(body) or at > len(body):
            raise BadRequest("the body ends within an object")
        blobs.append(body[start:at])
    return blobs


@router.get(
    "/objects/{digest}",
    summary="The bytes of an object",
    tags=["objects"],
    **_described(),
)
async def get(digest: str, who: Fetcher, kind: Kind = None) -> Response:
    objects = who.manager.output.objects
    data = await (objects.get_code(digest) if kind else objects.get(digest))
    return Response(data, media_type=BINARY)


@router.head(
    "/objects/{digest}",
    summary="Is an object there, and how large?",
    tags=["objects"],
    **_described(),
)
async def head(digest: str, who: Fetcher, kind: Kind = None) -> Response:
    objects = who.manager.output.objects
    size = await objects.size(digest, as_code=kind is not None)
    return Response(media_type=BINARY, headers={"Content-Length": str(size)})

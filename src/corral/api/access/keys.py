"""/keys: who may come in. A key's text is in one answer only, that to its making."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Struct

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.core.access.key import Key, Scope

router = APIRouter(prefix="/keys", tags=["keys"])
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]


class KeyIn(Struct, forbid_unknown_fields=True):
    """`role` is read, submit, operate or admin; without `ttl_s` it does not expire."""

    name: str
    role: str = str(Scope.SUBMIT)
    ttl_s: float | None = None


class KeyOut(Struct):
    """`status` is valid, expired or revoked; tasks submitted with it are `owner`'s."""

    key_id: str
    name: str
    owner: str
    role: str
    status: str
    created_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class KeyMade(KeyOut, kw_only=True):
    """`key` is shown this once."""

    key: str


class KeyListOut(Struct):
    keys: list[KeyOut]


def _shown(key: Key, now: datetime) -> KeyOut:
    expired = "valid" if key.is_valid(now) else "expired"
    return KeyOut(
        key.id,
        key.name,
        key.owner,
        str(key.scope),
        "revoked" if key.revoked_at is not None else expired,
        key.created_at,
        key.expires_at,
        key.revoked_at,
        key.last_used_at,
    )


@router.get("", summary="Keys of people", **described(KeyListOut))
async def list_keys(who: Admin) -> Response:
    now = who.manager.now()
    keys = who.manager.access.personal_keys()
    return answer(KeyListOut([_shown(key, now) for key in keys]))


@router.post(
    "",
    summary="Make a key; its text is in this answer only",
    **described(
        KeyMade,
        body=KeyIn,
        status=201,
        errors=(400, 409, 422),
        example={"name": "ann", "role": "submit", "ttl_s": 2592000},
    ),
)
async def create_key(request: Request, who: Admin) -> Response:
    said = await read(request, KeyIn)
    manager = who.manager
    key, text = await manager.access.create_key(said.name, said.role, said.ttl_s)
    who.note("key.create", key.id, name=key.name, role=str(key.scope))
    shown = _shown(key, manager.now())
    told = {name: getattr(shown, name) for name in shown.__struct_fields__}
    return answer(KeyMade(**told, key=text), 201)


@router.delete(
    "/{name}",
    summary="Revoke a key, by its name or its id",
    **described(KeyOut, errors=(404, 409)),
)
async def revoke_key(name: str, who: Admin) -> Response:
    manager = who.manager
    key = await manager.access.revoke_key(name, who.key)
    who.note("key.revoke", key.id, name=key.name)
    return answer(_shown(key, manager.now()))

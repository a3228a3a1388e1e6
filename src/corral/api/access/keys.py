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
from corral.errors import Conflict
from corral.wire.access import KeyInfo, KeyList, NewKey

router = APIRouter(prefix="/keys", tags=["keys"])
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]


class KeyIn(Struct, forbid_unknown_fields=True):
    """`role` is read, submit, operate or admin; without `ttl_s` it does not expire."""

    name: str
    role: str = str(Scope.SUBMIT)
    ttl_s: float | None = None


def _shown(key: Key, now: datetime) -> KeyInfo:
    expired = "valid" if key.is_valid(now) else "expired"
    status = "revoked" if key.revoked_at is not None else expired
    return KeyInfo.of(key, key_id=key.id, role=str(key.scope), status=status)


@router.get("", summary="Keys of people", **described(KeyList))
async def list_keys(who: Admin) -> Response:
    now = who.manager.now()
    keys = who.manager.access.personal_keys()
    return answer(KeyList(keys=[_shown(key, now) for key in keys]))


@router.post(
    "",
    summary="Make a key; its text is in this answer only",
    **described(
        NewKey,
        body=KeyIn,
        status=201,
        errors=(400, 409, 422),
        example={"name": "ann", "role": "submit", "ttl_s": 2592000},
    ),
)
async def create_key(request: Request, who: Admin) -> Response:
    manager = who.manager
    if manager.config.is_open:
        # Whoever happens to reach it now would go on being let in afterwards.
        raise Conflict(
            "keys are switched off (--insecure, CORRAL_INSECURE): start without it to "
            "make keys"
        )
    said = await read(request, KeyIn)
    key, text = await manager.access.create_key(said.name, said.role, said.ttl_s)
    who.note("key.create", key.id, name=key.name, role=str(key.scope))
    return answer(NewKey.of(_shown(key, manager.now()), key=text), 201)


@router.delete(
    "/{name}",
    summary="Revoke a key, by its name or its id",
    **described(KeyInfo, errors=(404, 409)),
)
async def revoke_key(name: str, who: Admin) -> Response:
    manager = who.manager
    key = await manager.access.revoke_key(name, who.key)
    who.note("key.revoke", key.id, name=key.name)
    return answer(_shown(key, manager.now()))

"""/keys and /join-tokens: who may come in, and which machines.

The text of a key or token is in one answer only, that to its making.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Struct

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.core.access.key import JoinGrant, Key, Scope
from corral.errors import Conflict
from corral.wire.access import (
    JoinToken,
    JoinTokenInfo,
    JoinTokenList,
    KeyInfo,
    KeyList,
    NewKey,
)

router = APIRouter(tags=["keys"])
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]


class KeyIn(Struct, forbid_unknown_fields=True):
    """`role` is read, submit, operate or admin; without `ttl_s` it does not expire."""

    name: str
    role: str = str(Scope.SUBMIT)
    ttl_s: float | None = None


class TokenIn(Struct, forbid_unknown_fields=True):
    """With labels, taints or job types, nodes that join may claim no others."""

    ttl_s: float = 86_400.0
    uses: int = 1
    labels: dict[str, str] = {}
    taints: list[str] = []
    job_types: list[str] = []


def _shown(key: Key, now: datetime) -> KeyInfo:
    expired = "valid" if key.is_valid(now) else "expired"
    status = "revoked" if key.revoked_at is not None else expired
    return KeyInfo.of(key, key_id=key.id, role=str(key.scope), status=status)


@router.get("/keys", summary="Keys of people", **described(KeyList))
async def list_keys(who: Admin) -> Response:
    now = who.manager.now()
    keys = who.manager.access.personal_keys()
    return answer(KeyList(keys=[_shown(key, now) for key in keys]))


@router.post(
    "/keys",
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
    "/keys/{name}",
    summary="Revoke a key, by its name or its id",
    **described(KeyInfo, errors=(404, 409)),
)
async def revoke_key(name: str, who: Admin) -> Response:
    manager = who.manager
    key = await manager.access.revoke_key(name, who.key)
    who.note("key.revoke", key.id, name=key.name)
    return answer(_shown(key, manager.now()))


@router.get(
    "/join-tokens", summary="Join tokens", tags=["nodes"], **described(JoinTokenList)
)
async def list_join_tokens(who: Admin) -> Response:
    now, tokens = who.manager.now(), who.manager.access.join_tokens()
    return answer(JoinTokenList(tokens=[_token(key, now) for key in tokens]))


def _token(key: Key, now: datetime) -> JoinTokenInfo:
    granted = key.granted or JoinGrant()
    status = "used" if key.uses_left == 0 else _shown(key, now).status
    return JoinTokenInfo.of(
        key,
        token_id=key.id,
        status=status,
        labels=dict(granted.labels),
        taints=granted.taints,
        job_types=granted.job_types,
    )


@router.post(
    "/join-tokens",
    summary="A token that lets a machine join; its text is in this answer only",
    tags=["nodes"],
    **described(
        JoinToken,
        body=TokenIn,
        status=201,
        errors=(400, 422),
        example={"ttl_s": 3600, "uses": 1, "labels": {"zone": "trusted"}},
    ),
)
async def create_join_token(request: Request, who: Admin) -> Response:
    said = await read(request, TokenIn)
    granted: JoinGrant | None = None
    if said.labels or said.taints or said.job_types:
        types = tuple(dict.fromkeys(said.job_types))
        granted = JoinGrant(said.labels, tuple(dict.fromkeys(said.taints)), types)
    key, text = await who.manager.access.create_join_token(
        said.ttl_s, said.uses, granted
    )
    who.note("join_token.create", key.id, uses=said.uses)
    made = JoinToken.of(key, token=text, uses=key.uses_left, token_id=key.id)
    return answer(made, 201)


@router.delete(
    "/join-tokens/{token_id}",
    summary="Revoke a join token; nodes that joined with it stay",
    tags=["nodes"],
    **described(JoinTokenInfo, errors=(404,)),
)
async def revoke_join_token(token_id: str, who: Admin) -> Response:
    key = await who.manager.access.revoke_join_token(token_id)
    who.note("join_token.revoke", key.id)
    return answer(_token(key, who.manager.now()))

"""/shares: how much of the cluster an owner, or all tasks with a label, may have."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Struct

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.core.access.share import Share
from corral.manager.queues.shares import ShareStatus
from corral.wire.queues import ShareInfo, ShareList

router = APIRouter(prefix="/shares", tags=["shares"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]


class ShareIn(Struct, forbid_unknown_fields=True):
    """`name` reads KEY=VALUE; one limit at least, what is not said is not limited."""

    name: str
    weight: float | None = None
    max_running: int | None = None
    gpu_seconds_per_day: float | None = None


class ShareRemoved(Struct):
    message: str
    name: str


def _shown(now: ShareStatus) -> ShareInfo:
    return ShareInfo.of(
        now.share,
        running=now.running,
        waiting=now.waiting,
        gpu_seconds_today=round(now.gpu_seconds_today, 3),
    )


@router.get("", summary="Shares, and how each stands", **described(ShareList))
async def list_shares(who: Reader) -> Response:
    return answer(
        ShareList(shares=[_shown(now) for now in who.manager.queues.shares.all()])
    )


@router.put(
    "",
    summary="Set a share, or change it",
    **described(
        ShareInfo,
        body=ShareIn,
        example={"name": "team=vision", "weight": 2.0, "max_running": 10},
    ),
)
async def set_share(request: Request, who: Admin) -> Response:
    said = await read(request, ShareIn)
    name = who.manager.access.share_name(said.name)
    share = Share(name, said.weight, said.max_running, said.gpu_seconds_per_day)
    await who.manager.queues.shares.save(share)
    who.note("share.set", share.name)
    return answer(_shown(who.manager.queues.shares.get(share.name)))


@router.delete(
    "/{name}", summary="Remove a share", **described(ShareRemoved, errors=(404,))
)
async def remove_share(name: str, who: Admin) -> Response:
    name = who.manager.access.share_name(name)
    await who.manager.queues.shares.remove(name)
    who.note("share.remove", name)
    return answer(ShareRemoved("the share is removed", name))

"""/nodes: what operators do with them: cordon, drain, label, taint, plan, remove, close
breakers, release GPUs.

What agents say of themselves is in `api/nodes/agent.py`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from corral.api.body import answer, plain, read
from corral.api.caller import Caller, caller
from corral.api.nodes import render
from corral.api.openapi import described
from corral.api.tasks.intake import read_moment
from corral.core.access.key import Scope
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import NodeState, Window
from corral.errors import Forbidden
from corral.manager.cluster.state import NodeLink
from corral.manager.cron import zone_of
from corral.wire.nodes import (
    BreakerResetIn,
    BreakersReset,
    HoldIn,
    NodeChange,
    NodeGone,
    WindowIn,
    WindowList,
)

router = APIRouter(prefix="/nodes", tags=["nodes"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
# A machine may take its leave by itself.
Leaver = Annotated[Caller, Depends(caller(Scope.OPERATE, Scope.NODE))]
_WINDOW = {"name": "patch-day", "cron": "0 3 * * 2", "duration": 7200}


def _shown(who: Caller, link: NodeLink) -> Response:
    workers = who.manager.nodes.workers_of(link)
    now = who.manager.now()
    return answer(render.node(link, workers, now))


@router.patch(
    "/{node_id}",
    summary="Change a node's labels and taints; null takes one away",
    **described(
        render.NodeOut,
        body=NodeChange,
        errors=(404,),
        example={"labels": {"rack": "a", "old": None}, "taints": {"spot": ""}},
    ),
)
async def change(node_id: str, request: Request, who: Operator) -> Response:
    said = await read(request, NodeChange)
    link = await who.manager.nodes.labels.change(node_id, said.labels, said.taints)
    who.note("node.change", node_id, labels=said.labels, taints=said.taints)
    return _shown(who, link)


async def _hold(
    node_id: str, request: Request, who: Caller, *, drain: bool
) -> Response:
    said = await read(request, HoldIn)
    now, until = who.manager.now(), said.until
    link = await who.manager.nodes.holds.hold(
        node_id,
        plain(said.reason, "reason") or "",
        None if until is None else read_moment(until, now, "until"),
        who.key.name or who.key.id,
        drain=drain,
    )
    who.note("node.drain" if drain else "node.cordon", node_id, reason=said.reason)
    return _shown(who, link)


@router.post(
    "/{node_id}/cordon",
    summary="Give a node nothing new; what it runs goes on",
    **described(
        render.NodeOut,
        body=HoldIn,
        errors=(404,),
        example={"reason": "new cables", "until": 3600},
    ),
)
async def cordon(node_id: str, request: Request, who: Operator) -> Response:
    return await _hold(node_id, request, who, drain=False)


@router.post(
    "/{node_id}/drain",
    summary="Give a node nothing new, and stop its workers when they are done",
    **described(
        render.NodeOut,
        body=HoldIn,
        errors=(404,),
        example={"reason": "kernel update"},
    ),
)
async def drain(node_id: str, request: Request, who: Operator) -> Response:
    return await _hold(node_id, request, who, drain=True)


@router.post(
    "/{node_id}/uncordon",
    summary="Let a node have work again",
    **described(render.NodeOut, errors=(404,)),
)
async def uncordon(node_id: str, who: Operator) -> Response:
    link = await who.manager.nodes.holds.uncordon(node_id)
    who.note("node.uncordon", node_id)
    return _shown(who, link)


@router.delete(
    "/{node_id}",
    summary="Let a node leave: its agent stops, its key is void",
    **described(NodeGone, errors=(404, 409)),
)
async def leave(node_id: str, who: Leaver, force: bool = False) -> Response:
    if who.key.scope is Scope.NODE and who.key.node_id != node_id:
        raise Forbidden("this credential belongs to another node")
    link = await who.manager.nodes.leave.leave(node_id, force=force)
    who.note("node.leave", node_id, force=force)
    has_left = link.node.state is NodeState.LEFT
    words = "the node has left" if has_left else "the node's agent stops"
    status = "left" if has_left else "leaving"
    return answer(NodeGone(node_id=node_id, status=status, message=words))


@router.get(
    "/{node_id}/windows",
    summary="A node's windows of maintenance",
    **described(WindowList, errors=(404,)),
)
async def list_windows(node_id: str, who: Reader) -> Response:
    link = who.manager.nodes.get(node_id)
    return answer(_windows(who, link))


def _windows(who: Caller, link: NodeLink) -> WindowList:
    now = who.manager.now()
    return WindowList(windows=[render.window(w, now) for w in link.node.windows])


@router.post(
    "/{node_id}/windows",
    summary="Plan maintenance, once or by the clock",
    **described(
        WindowList,
        body=WindowIn,
        status=201,
        errors=(404, 409),
        example=_WINDOW,
    ),
)
async def add_window(node_id: str, request: Request, who: Operator) -> Response:
    said = await read(request, WindowIn)
    zone, now, starts = (
        zone_of(said.timezone),
        who.manager.now(),
        said.starts_at,
    )
    window = Window(
        said.name,
        said.duration,
        " ".join(said.cron.split()) if said.cron is not None else None,
        said.timezone,
        None if starts is None else read_moment(starts, now, "starts_at", zone),
        plain(said.reason, "reason") or "",
        said.drain,
    )
    link = await who.manager.nodes.labels.add_window(node_id, window)
    who.note("node.window.add", node_id, name=said.name)
    return answer(_windows(who, link), 201)


@router.delete(
    "/{node_id}/windows/{name}",
    summary="Forget a window; one that lasts ends now",
    **described(WindowList, errors=(404,)),
)
async def remove_window(node_id: str, name: str, who: Operator) -> Response:
    link = await who.manager.nodes.labels.remove_window(node_id, name)
    who.note("node.window.remove", node_id, name=name)
    return answer(_windows(who, link))


@router.get("", summary="All nodes", **described(render.NodeListOut))
async def list_nodes(who: Reader) -> Response:
    nodes, now = who.manager.nodes, who.manager.now()
    rows = [render.node(n, nodes.workers_of(n), now) for n in nodes.all()]
    return answer(render.NodeListOut(nodes=rows, total=len(rows)))


@router.get(
    "/{node_id}", summary="One node", **described(render.NodeOut, errors=(404,))
)
async def get_node(node_id: str, who: Reader) -> Response:
    nodes = who.manager.nodes
    link = nodes.get(node_id)
    return answer(render.node(link, nodes.workers_of(link), who.manager.now()))


@router.post(
    "/{node_id}/breakers/reset",
    summary="Close a node's breakers and start their workers at once",
    **described(
        BreakersReset,
        body=BreakerResetIn,
        errors=(400, 404, 422),
        example={"key": "my_workers:Detector"},
    ),
)
async def reset(node_id: str, request: Request, who: Operator) -> Response:
    wanted = await read(request, BreakerResetIn)
    done = await who.manager.nodes.reset_breakers(node_id, wanted.key)
    who.note("breaker.reset", node_id, keys=sorted(done))
    workers = sorted(worker for some in done.values() for worker in some)
    return answer(BreakersReset(node_id=node_id, reset=sorted(done), workers=workers))


@router.post(
    "/{node_id}/gpus/{gpu_id}/release",
    summary="Lift the quarantine of a GPU",
    **described(Gpu, errors=(404, 409)),
)
async def release(node_id: str, gpu_id: str, who: Operator) -> Response:
    card = who.manager.nodes.release_gpu(node_id, gpu_id)
    who.note("gpu.release", node_id, gpu_id=card.id)
    return answer(card)

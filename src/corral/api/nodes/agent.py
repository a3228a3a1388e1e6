"""/nodes: machines; and what their agents say."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from corral import __version__
from corral.api.deps import Caller, answer, caller, plain, read
from corral.api.nodes import shapes
from corral.api.workers.intake import (
    declared_specs,
    models_in,
    worker_state,
)
from corral.core.access.key import Scope
from corral.core.nodes.node import Sample
from corral.core.nodes.peer import Peer
from corral.core.nodes.worker import WorkerRecord
from corral.core.tasks.environment import to_plain
from corral.core.tasks.options import check_taint
from corral.errors import InvalidField
from corral.manager.access.derived_keys import node_password
from corral.manager.cluster.state import NodeLink
from corral.manager.nodes.heartbeat import Beat, OwnerWord, check_version
from corral.manager.nodes.master import MACHINE
from corral.manager.workers.registry import WorkerBeat
from corral.relay.port import has_port

router = APIRouter(prefix="/nodes", tags=["nodes"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
OwnNode = Annotated[Caller, Depends(caller(Scope.NODE))]
Joiner = Annotated[Caller, Depends(caller(Scope.JOIN))]
MAX_WAIT_S = 30.0


@router.post("/join", include_in_schema=False)
async def join(request: Request, who: Joiner) -> Response:
    said = await read(request, shapes.JoinIn)
    hostname = plain(said.name or said.hostname, "hostname")
    if not hostname:
        raise InvalidField("hostname must not be empty", field="hostname")
    await who.manager.access.keys.spend(who.key)
    node = await who.manager.nodes.registry.join(hostname)
    _, text = await who.manager.access.keys.create(
        Scope.NODE, f"node {node.id}", node_id=node.id
    )
    who.note("node.join", node.id, hostname=hostname)
    return answer(shapes.JoinOut(node.id, text), 201)


@router.post("/{node_id}/register", include_in_schema=False)
async def register(node_id: str, request: Request, who: OwnNode) -> Response:
    said = await read(request, shapes.RegisterIn)
    found = check_version(plain(said.version, "version"), __version__)
    specs, nodes = declared_specs(said.workers), who.manager.nodes
    facts = {
        "version": plain(said.version, "version"),
        "address": plain(said.address, "address") or who.ip,
        "labels": said.labels,
        "taints": _taints(said.taints),
        "capabilities": {
            "hostname": said.hostname,
            **said.capabilities,
            MACHINE: plain(said.machine, "machine"),
        },
        "node_type": nodes.master.role_of(node_id, said.node_type, said.machine),
    }
    link = await nodes.registry.register(node_id, facts, specs)
    await nodes.heartbeats.note_clock(link, said.clock)
    await nodes.heartbeats.note_version(link, found)
    who.note("node.register", node_id, epoch=link.node.epoch)
    version, workers = await nodes.registry.desired(node_id, -1, 0.0)
    config = who.manager.config
    return answer(
        shapes.RegisterOut(
            epoch=link.node.epoch,
            desired=_desired(version, workers, link),
            beat_s=config.beat_s,
            fence_after_s=config.fence_after_s,
            sample_s=config.sample_s,
            engine=await _engine(who, node_id),
            limits=shapes.LimitsOut(
                config.liveness.no_overlap_kill_s,
                config.overrun_s,
                config.models.load_s,
            ),
        )
    )


def _taints(said: list[str]) -> list[str]:
    for taint in said:
        check_taint(taint, "taints")
    return said


async def _engine(who: Caller, node_id: str) -> shapes.EngineOut:
    engine = who.manager.ctx.engine
    password = node_password(who.manager.config.cluster_secret, node_id)
    user = await engine.grant(node_id, password)
    address = engine.address
    return shapes.EngineOut(
        address.public_url, user, password if user else None, address.database
    )


def _desired(
    version: int, workers: list[WorkerRecord], link: NodeLink, *, leave: bool = False
) -> shapes.DesiredOut:
    return shapes.DesiredOut(
        version,
        [
            shapes.DesiredWorker(
                w.id,
                w.spec.name,
                w.spec.worker_class,
                list(w.spec.job_types),
                w.spec.params,
                w.spec.concurrency,
                to_plain(w.spec.environment) if w.spec.environment else None,
                w.spec.entry,
                w.generation,
                w.spec.url,
                w.spec.gpus,
                w.spec.worker_type,
            )
            for w in workers
        ],
        leave,
        [shapes.GpuReleaseOut(*told) for told in link.gpu_releases.items()],
        link.is_forgotten,
    )


@router.get("/{node_id}/desired", include_in_schema=False)
async def desired(
    node_id: str,
    who: OwnNode,
    since: int = 0,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0.0,
) -> Response:
    nodes = who.manager.nodes
    version, workers = await nodes.registry.desired(node_id, since, wait)
    link = nodes.get(node_id)
    link.is_leave_told = link.is_leaving
    return answer(_desired(version, workers, link, leave=link.is_leaving))


@router.post("/{node_id}/beat", include_in_schema=False)
async def beat(node_id: str, request: Request, who: OwnNode) -> Response:
    said = await read(request, shapes.BeatIn)
    told = _beat(node_id, said, who.manager.now())
    version, drop = await who.manager.nodes.heartbeats.beat(node_id, told)
    return answer(shapes.BeatOut(version, drop))


def _beat(node_id: str, said: shapes.BeatIn, now: datetime) -> Beat:
    sample, owner = None, OwnerWord()
    if (s := said.sample) is not None:
        values = {name: getattr(s, name) for name in s.__struct_fields__}
        sample = Sample(node_id=node_id, at=now, **values)
    if said.owner is not None:
        reason = (said.owner.reason or "in use") if said.owner.active else None
        owner = OwnerWord(reason, said.owner.drain)
    words = {w.worker_id: models_in(w.facts) for w in said.workers}
    return Beat(
        said.epoch,
        [_worker_beat(w) for w in said.workers],
        sample,
        said.gpus,
        said.breakers,
        {id_: word for id_, word in words.items() if word},
        _peer(said.peer),
        owner,
        said.clock,
    )


def _peer(said: shapes.PeerIn | None) -> Peer | None:
    """Other nodes will be sent there: only to what our own peers open."""
    if said is None or not has_port(said.url):
        return None
    return Peer(said.url.rstrip("/"), said.secret, said.models)


def _worker_beat(said: shapes.WorkerBeatIn) -> WorkerBeat:
    return WorkerBeat(
        said.worker_id,
        said.incarnation,
        worker_state(said.state),
        said.pid,
        said.error,
        said.restarts,
        said.age_s,
        frozenset(said.held),
        said.memory_mb,
        said.facts,
        said.breaker,
    )

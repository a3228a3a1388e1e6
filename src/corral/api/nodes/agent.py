"""/nodes: machines; and what their agents say."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from corral import __version__
from corral.api.deps import Caller, answer, caller, plain, read
from corral.api.nodes import shapes
from corral.api.workers.intake import (
    declared_specs,
    models_in,
    models_word,
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
from corral.manager.app import Manager
from corral.manager.cluster.state import NodeLink
from corral.manager.nodes import heartbeat, offers
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
    await who.manager.access.spend(who.key)
    node = await who.manager.registry.join(hostname)
    _, text = await who.manager.access.create(
        Scope.NODE, f"node {node.id}", node_id=node.id
    )
    who.note("node.join", node.id, hostname=hostname)
    return answer(shapes.JoinOut(node.id, text), 201)


@router.post("/{node_id}/register", include_in_schema=False)
async def register(node_id: str, request: Request, who: OwnNode) -> Response:
    said = await read(request, shapes.RegisterIn)
    found = heartbeat.check_version(plain(said.version, "version"), __version__)
    specs = declared_specs(said.workers)
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
        "node_type": who.manager.master.role_of(node_id, said.node_type, said.machine),
    }
    link = await who.manager.registry.register(node_id, facts, specs)
    manager = who.manager
    await heartbeat.note_clock(manager.store, manager.clock, link, said.clock)
    await heartbeat.note_version(manager.store, manager.clock, link, found)
    who.note("node.register", node_id, epoch=link.node.epoch)
    version, workers = await who.manager.registry.desired(node_id, -1, 0.0)
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
    engine = who.manager.engine
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
    registry = who.manager.registry
    version, workers = await registry.desired(node_id, since, wait)
    link = registry.node(node_id)
    link.is_leave_told = link.is_leaving
    return answer(_desired(version, workers, link, leave=link.is_leaving))


@router.post("/{node_id}/beat", include_in_schema=False)
async def beat(node_id: str, request: Request, who: OwnNode) -> Response:
    said = await read(request, shapes.BeatIn)
    beats = [_beat(w) for w in said.workers]
    sample = None
    if said.sample is not None:
        s = said.sample
        values = {name: getattr(s, name) for name in s.__struct_fields__}
        sample = Sample(node_id=node_id, at=who.manager.clock.now(), **values)
    manager = who.manager
    version, drop = await manager.registry.beat(node_id, said.epoch, beats, sample)
    if said.gpus is not None:
        link, now = manager.registry.node(node_id), manager.clock.now()
        await heartbeat.note_gpus(manager.store, link, said.gpus, now)
    await heartbeat.note_breakers(
        manager.store,
        manager.registry.node(node_id),
        said.breakers,
        manager.clock.now(),
    )
    _note_models(manager, node_id, beats, has_reading=said.gpus is not None)
    if offers.note_offers(manager.cluster, manager.registry.node(node_id), beats):
        manager.dispatching.kick()
    link, word = manager.registry.node(node_id), said.owner
    link.peer = _peer(said.peer)
    await heartbeat.note_clock(manager.store, manager.clock, link, said.clock)
    reason = (word.reason or "in use") if word is not None and word.active else None
    is_drain = word is not None and word.drain
    await heartbeat.note_owner(
        manager.store, manager.clock, link, reason, drain=is_drain
    )
    return answer(shapes.BeatOut(version, drop))


def _peer(said: shapes.PeerIn | None) -> Peer | None:
    """Other nodes will be sent there: only to what our own peers open."""
    if said is None or not has_port(said.url):
        return None
    return Peer(said.url.rstrip("/"), said.secret, said.models)


def _note_models(
    manager: Manager, node_id: str, beats: list[WorkerBeat], *, has_reading: bool
) -> None:
    """Beats repeat what workers say of their models, for a manager that began anew."""
    lead_s = manager.registry.node(node_id).clock.correction_s
    for told in beats:
        link = manager.cluster.workers.get(told.worker_id)
        if link is None or link.worker.node_id != node_id:
            continue
        said = models_in(told.facts)
        if said and told.incarnation and told.incarnation == link.worker.incarnation:
            manager.models.note(link, models_word(said, lead_s))
    manager.models.look(node_id, has_reading=has_reading)


def _beat(said: shapes.WorkerBeatIn) -> WorkerBeat:
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

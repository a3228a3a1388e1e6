"""/nodes: machines; and what their agents say."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from corral import __version__
from corral.api.body import answer, plain, read
from corral.api.caller import Caller, caller
from corral.api.nodes import shapes
from corral.api.workers.intake import (
    declared_specs,
    models_in,
    worker_state,
)
from corral.core.access.key import Scope
from corral.core.nodes.labels import check_taint
from corral.core.nodes.node import Sample
from corral.core.nodes.peer import Peer
from corral.core.tasks.environment import to_plain
from corral.errors import InvalidField
from corral.manager.nodes.heartbeat import Beat, OwnerWord, check_version
from corral.manager.nodes.join import AgentStart, DesiredState
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
    node_id, text = await who.manager.nodes.join.join(hostname, who.key)
    who.note("node.join", node_id, hostname=hostname)
    return answer(shapes.JoinOut(node_id, text), 201)


@router.post("/{node_id}/register", include_in_schema=False)
async def register(node_id: str, request: Request, who: OwnNode) -> Response:
    said = await read(request, shapes.RegisterIn)
    version = plain(said.version, "version")
    # First of all: another version may say the rest in another way.
    check_version(version, __version__)
    start = AgentStart(
        workers=declared_specs(said.workers),
        version=version,
        address=plain(said.address, "address") or who.ip,
        labels=said.labels,
        taints=_taints(said.taints),
        capabilities={"hostname": said.hostname, **said.capabilities},
        machine=plain(said.machine, "machine"),
        node_type=said.node_type,
        clock=said.clock,
    )
    epoch, desired = await who.manager.nodes.join.register(node_id, start)
    who.note("node.register", node_id, epoch=epoch)
    config = who.manager.config
    return answer(
        shapes.RegisterOut(
            epoch=epoch,
            desired=_desired(desired),
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
    given = await who.manager.nodes.join.engine_access(node_id)
    return shapes.EngineOut(given.url, given.user, given.password, given.database)


def _desired(state: DesiredState) -> shapes.DesiredOut:
    return shapes.DesiredOut(
        state.version,
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
            for w in state.workers
        ],
        state.is_leaving,
        [shapes.GpuReleaseOut(*told) for told in state.releases.items()],
        state.is_forgotten,
    )


@router.get("/{node_id}/desired", include_in_schema=False)
async def desired(
    node_id: str,
    who: OwnNode,
    since: int = 0,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0.0,
) -> Response:
    state = await who.manager.nodes.join.desired(node_id, since, wait)
    return answer(_desired(state))


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

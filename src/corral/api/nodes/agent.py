"""/nodes: machines; and what their agents say."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from corral import __version__
from corral.api.body import answer, plain, read
from corral.api.caller import Caller, caller, manager_of
from corral.api.workers.intake import declared_specs
from corral.core.access.key import Scope
from corral.core.nodes.labels import check_taint
from corral.core.nodes.worker import WorkerRecord
from corral.core.tasks.environment import to_plain
from corral.errors import InvalidField
from corral.manager.nodes.heartbeat import check_version
from corral.manager.nodes.join import AgentStart, DesiredState
from corral.wire.agent import (
    Beat,
    BeatAnswer,
    DesiredWorker,
    DesiredWorkers,
    GpuRelease,
    JoinProof,
    JoinRequest,
    NodeAdmission,
    NodeCredential,
    NodeRegistration,
    RedisAccess,
    TimeLimits,
)

router = APIRouter(prefix="/nodes", tags=["nodes"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
OwnNode = Annotated[Caller, Depends(caller(Scope.NODE))]
Joiner = Annotated[Caller, Depends(caller(Scope.JOIN))]
MAX_WAIT_S = 30.0


@router.get("/join/proof", include_in_schema=False)
async def prove(
    request: Request,
    token_id: Annotated[str, Query(max_length=64)] = "",
    nonce: Annotated[str, Query(max_length=128)] = "",
) -> Response:
    """For a machine that found us on its network, and does not know who we are."""
    manager = manager_of(request)
    host, port = request.scope.get("server") or ("", None)
    own = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    addresses = [own, *filter(None, [manager.config.public_url])]
    ip = request.client.host if request.client else ""
    proof = manager.access.keys.prove(token_id, nonce, addresses, ip)
    return answer(JoinProof(addresses=addresses, proof=proof))


@router.post("/join", include_in_schema=False)
async def join(request: Request, who: Joiner) -> Response:
    said = await read(request, JoinRequest)
    hostname = plain(said.name or said.hostname, "hostname")
    if not hostname:
        raise InvalidField("hostname must not be empty", field="hostname")
    node_id, text = await who.manager.nodes.join.join(hostname, who.key)
    who.note("node.join", node_id, hostname=hostname)
    return answer(NodeCredential(node_id=node_id, key=text), 201)


@router.post("/{node_id}/register", include_in_schema=False)
async def register(node_id: str, request: Request, who: OwnNode) -> Response:
    said = await read(request, NodeRegistration)
    version = plain(said.version, "version")
    # First of all: another version may say the rest in another way.
    check_version(version, __version__)
    start = AgentStart(
        workers=declared_specs(said.workers),
        version=version,
        # Not its own word: others are sent there, as to the first of a gang.
        address=who.ip,
        labels=said.labels,
        taints=_taints(said.taints),
        capabilities={"hostname": said.hostname, **said.capabilities},
        machine=plain(said.machine, "machine"),
        node_type=said.node_type,
        clock=said.clock,
    )
    epoch, desired = await who.manager.nodes.join.register(
        node_id, start, who.key.granted
    )
    who.note("node.register", node_id, epoch=epoch)
    config = who.manager.config
    return answer(
        NodeAdmission(
            epoch=epoch,
            desired=_desired(desired),
            beat_s=config.beat_s,
            fence_after_s=config.fence_after_s,
            sample_s=config.sample_s,
            engine=await _engine(who, node_id),
            limits=TimeLimits(
                no_overlap_kill_s=config.liveness.no_overlap_kill_s,
                overrun_s=config.overrun_s,
                model_load_s=config.models.load_s,
            ),
        )
    )


def _taints(said: list[str]) -> list[str]:
    for taint in said:
        check_taint(taint, "taints")
    return said


async def _engine(who: Caller, node_id: str) -> RedisAccess:
    given = await who.manager.nodes.engine.grant(node_id)
    return RedisAccess.of(given, direct_url=given.url, username=given.user, prefix="")


def _desired(state: DesiredState) -> DesiredWorkers:
    return DesiredWorkers(
        version=state.version,
        workers=[_worker(each) for each in state.workers],
        leave=state.is_leaving,
        gpu_releases=[
            GpuRelease(gpu_id=gpu_id, since=since)
            for gpu_id, since in state.releases.items()
        ],
        forget=state.is_forgotten,
    )


def _worker(row: WorkerRecord) -> DesiredWorker:
    environment = row.spec.environment
    return DesiredWorker.of(
        row.spec,
        worker_id=row.id,
        generation=row.generation,
        environment=to_plain(environment) if environment else None,
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
    said = await read(request, Beat)
    version, drop = await who.manager.nodes.heartbeats.beat(node_id, said)
    return answer(BeatAnswer(desired_version=version, drop=drop))

"""The job API's worker types, launches and worker status. All POST."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from msgspec import UNSET

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.job_api import render, shapes
from corral.api.openapi import described
from corral.api.workers import render as worker_render
from corral.api.workers.intake import wanted_gpus, worker_spec
from corral.core.access.key import Scope
from corral.core.nodes.worker_type import WorkerType, check_served
from corral.core.tasks.environment import (
    ArchiveEnvironment,
    Environment,
    from_plain,
)
from corral.core.tasks.job_type import check_name
from corral.errors import InvalidField
from corral.wire.agent import WorkerRecipe
from corral.wire.job_api import LaunchId, LaunchStatus, NodeAccess
from corral.wire.workers import WorkerTypeList

router = APIRouter(tags=["job API"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
_TYPE = {"worker_name": "mine", "worker_class": "pkg:Class", "job_type": "echo"}


@router.post(
    "/register_worker_type",
    summary="Name a class that nodes may launch workers of",
    **described(dict, body=shapes.WorkerTypeIn, example=_TYPE),
)
async def register_worker_type(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.WorkerTypeIn)
    name = check_name(said.worker_name, "worker_name")
    if said.job_type is not None:
        check_name(said.job_type, "job_type")
    spec = worker_spec(
        "", WorkerRecipe(worker_class=said.worker_class, job_types=["any"])
    )
    row = WorkerType(
        name,
        spec.worker_class,
        said.worker_params,
        said.job_type,
        await _environment(who, said),
        **_limits(who, name, said),
    )
    if said.max_workers is not UNSET:
        check_served(row)
    await who.manager.workers.types.save(row)
    who.note("worker_type.save", name, worker_class=row.worker_class)
    return answer(None)


def _limits(who: Caller, name: str, said: shapes.WorkerTypeIn) -> dict[str, Any]:
    """What is said of its workers' number and cards; else what was said before."""
    known = who.manager.workers.types.find(name)
    kept = known or WorkerType(name, said.worker_class)
    gpus = kept.gpus if said.gpus is UNSET else wanted_gpus(said.gpus)
    least = kept.min_workers if said.min_workers is UNSET else said.min_workers
    most = kept.max_workers if said.max_workers is UNSET else said.max_workers
    return {"gpus": gpus, "min_workers": least, "max_workers": most}


async def _environment(who: Caller, said: shapes.WorkerTypeIn) -> Environment | None:
    """Where the code comes from: `environment`, or the older `git_*` fields."""
    if said.git_repo_url is not None:
        if said.environment is not None:
            raise InvalidField("give environment or git_*, not both", field="git_*")
        git = {
            "repo_url": said.git_repo_url,
            "branch": said.git_branch,
            "commit": said.git_commit,
            "working_dir": said.git_working_dir,
            "project": said.git_project,
        }
        return from_plain({"git": git})
    if said.environment is None:
        return None
    found = from_plain(said.environment)
    if isinstance(found, ArchiveEnvironment):
        # Said now, and not by a node minutes later.
        await who.manager.output.objects.check_there(found.digest)
    return found


@router.get(
    "/worker-types",
    summary="Classes that nodes may launch workers of",
    **described(WorkerTypeList),
)
async def worker_types(who: Reader) -> Response:
    known = who.manager.workers.types.all()
    return answer(
        WorkerTypeList(worker_types=[worker_render.worker_type(t) for t in known])
    )


@router.delete(
    "/worker-types/{name}",
    summary="Forget a worker type; its workers go on",
    **described(dict, errors=(404,)),
)
async def remove_worker_type(name: str, who: Operator) -> Response:
    await who.manager.workers.types.remove(name)
    who.note("worker_type.remove", name)
    return answer(None)


@router.post(
    "/register_job_schema_to_worker_type",
    summary="Let workers of a type serve a job type",
    **described(
        dict,
        body=shapes.SchemaToWorkerType,
        errors=(404,),
        example={"job_schema_name": "echo", "worker_type": "mine"},
    ),
)
async def register_job_schema_to_worker_type(
    request: Request, who: Operator
) -> Response:
    said = await read(request, shapes.SchemaToWorkerType)
    check_name(said.job_schema_name, "job_schema_name")
    await who.manager.workers.types.bind(said.job_schema_name, said.worker_type)
    who.note("worker_type.bind", said.worker_type, job_type=said.job_schema_name)
    return answer(None)


@router.post(
    "/register_job_to_worker",
    summary="Let a worker serve a job type, now or as soon as it is there",
    **described(
        dict,
        body=shapes.JobToWorker,
        example={"job_type": "echo", "worker_url": "http://localhost:8004"},
    ),
)
async def register_job_to_worker(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.JobToWorker)
    check_name(said.job_type, "job_type")
    await who.manager.workers.types.connect(said.job_type, said.worker_url)
    who.note("worker.connect", said.worker_url, job_type=said.job_type)
    return answer(None)


@router.post(
    "/launch_worker",
    summary="Launch a worker of a registered type on a node",
    **described(
        LaunchId,
        body=shapes.LaunchIn,
        errors=(404, 409),
        example={"node_url": "http://localhost:8003", "worker_type": "mine"},
    ),
)
async def launch_worker(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.LaunchIn)
    if said.worker_name is not None:
        check_name(said.worker_name, "worker_name")
    if said.auto_connect_job_type is not None:
        check_name(said.auto_connect_job_type, "auto_connect_job_type")
    launch_id = await who.manager.workers.types.launch(
        said.node_url,
        said.worker_type,
        said.worker_name,
        said.worker_url,
        said.auto_connect_job_type,
        wanted_gpus(said.gpus),
    )
    who.note("worker.launch", said.node_url, worker_type=said.worker_type)
    return answer(LaunchId(launch_id=launch_id))


@router.post(
    "/launch_worker_status",
    summary="How far a launch is",
    **described(
        LaunchStatus,
        body=shapes.LaunchAsked,
        errors=(404,),
        example={"launch_id": "w-1"},
    ),
)
async def launch_worker_status(request: Request, who: Reader) -> Response:
    said = await read(request, shapes.LaunchAsked)
    return answer(render.launch(who.manager.workers.types.launch_of(said.launch_id)))


def _by_id(who: Caller, worker_id: str) -> Response:
    link = who.manager.workers.find(worker_id)
    return answer(render.worker(link, worker_id=worker_id))


def _by_url(who: Caller, url: str) -> Response:
    return answer(render.worker(who.manager.workers.types.by_url(url), url=url))


@router.post(
    "/get_worker_status",
    summary="A worker; status nonexistent when there is none",
    **described(
        shapes.WorkerStatusOut, body=shapes.WorkerId, example={"worker_id": "w-1"}
    ),
)
async def get_worker_status(request: Request, who: Reader) -> Response:
    return _by_id(who, (await read(request, shapes.WorkerId)).worker_id)


@router.post(
    "/query_worker_status",
    summary="The same: what heartbeats say is always live",
    **described(
        shapes.WorkerStatusOut, body=shapes.WorkerId, example={"worker_id": "w-1"}
    ),
)
async def query_worker_status(request: Request, who: Reader) -> Response:
    return _by_id(who, (await read(request, shapes.WorkerId)).worker_id)


@router.post(
    "/get_worker_status_by_url",
    summary="A worker by its URL",
    **described(
        shapes.WorkerStatusOut,
        body=shapes.WorkerUrl,
        example={"worker_url": "http://h:8004"},
    ),
)
async def get_worker_status_by_url(request: Request, who: Reader) -> Response:
    return _by_url(who, (await read(request, shapes.WorkerUrl)).worker_url)


@router.post(
    "/query_worker_status_by_url",
    summary="The same: what heartbeats say is always live",
    **described(
        shapes.WorkerStatusOut,
        body=shapes.WorkerUrl,
        example={"worker_url": "http://h:8004"},
    ),
)
async def query_worker_status_by_url(request: Request, who: Reader) -> Response:
    return _by_url(who, (await read(request, shapes.WorkerUrl)).worker_url)


@router.post(
    "/register_node",
    summary="Kept for older nodes: they need nothing from it any more",
    **described(
        NodeAccess,
        body=shapes.NodeIn,
        example={"node_url": "http://localhost:8003"},
    ),
)
async def register_node(request: Request, who: Operator) -> Response:
    await read(request, shapes.NodeIn)
    return answer(NodeAccess())

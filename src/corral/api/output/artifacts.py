"""Files of tasks: users list and fetch them, nodes have them kept."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from msgspec import Struct

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.output.objects import BINARY
from corral.core.access.key import Scope
from corral.core.tasks.job_type import NAME
from corral.core.tree import TreeFile
from corral.errors import Forbidden, TaskNotFound
from corral.manager.cluster.state import WorkerLink
from corral.wire.output import ArtifactInfo, ArtifactList, KeepRequest

router = APIRouter(tags=["tasks"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
OwnNode = Annotated[Caller, Depends(caller(Scope.NODE))]
Attempt = Annotated[
    int | None, Query(ge=1, le=1 << 30, description="the last that left files if none")
]
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})?")


class TreeOut(Struct):
    digest: str | None
    files: int = 0
    size: int = 0


def _id(task_id: str) -> str:
    if not NAME.fullmatch(task_id):
        raise TaskNotFound(f"no task {task_id[:200]!r}", task_id=task_id[:200])
    return task_id


@router.get(
    "/tasks/{task_id}/artifacts",
    summary="The files a task left",
    **described(ArtifactList, errors=(404, 422)),
)
async def artifacts(task_id: str, who: Reader, attempt: Attempt = None) -> Response:
    found = await who.manager.output.artifacts.artifacts(_id(task_id), attempt)
    if found is None:
        return answer(ArtifactList(task_id=task_id))
    row, tree = found
    files = [ArtifactInfo.of(file) for file in tree.files]
    told = ArtifactList.of(row, task_id=task_id, artifacts=files, created_at=row.at)
    return answer(told)


def _described() -> dict[str, Any]:
    told = described(ArtifactInfo, errors=(404, 422))
    blob = {BINARY: {"schema": {"type": "string", "format": "binary"}}}
    told["openapi_extra"]["responses"]["200"]["content"] = blob
    told["response_class"] = Response
    return told


@router.get(
    "/tasks/{task_id}/artifacts/{name:path}",
    summary="One file a task left; a range of it when asked for",
    **_described(),
)
async def artifact(
    request: Request, task_id: str, name: str, who: Reader, attempt: Attempt = None
) -> Response:
    file = await who.manager.output.artifacts.artifact(_id(task_id), name, attempt)
    status, start, end = _span(request.headers.get("range"), file.size)
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start),
        "Content-Disposition": f"attachment; filename*=UTF-8''{_last(file)}",
        "ETag": f'"{file.digest}"',
    }
    if status != 200:
        span = f"{start}-{end - 1}" if status == 206 else "*"
        headers["Content-Range"] = f"bytes {span}/{file.size}"
    parts = who.manager.output.artifacts.read(file, start, end)
    # The first one before the answer begins: it can still be an error.
    first = await anext(parts, b"")
    return StreamingResponse(
        _whole(first, parts), status, headers=headers, media_type=BINARY
    )


async def _whole(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


def _last(file: TreeFile) -> str:
    return quote(file.name.rpartition("/")[2], safe="")


def _span(asked: str | None, size: int) -> tuple[int, int, int]:
    """Status, first byte and the one after the last; what is no range is ignored."""
    parts = _RANGE.fullmatch(asked or "")
    if parts is None:
        return 200, 0, size
    start = int(parts[1])
    end = min(int(parts[2]) + 1, size) if parts[2] else size
    if start >= size or end <= start:
        return 416, 0, 0
    return 206, start, end


def _own(who: Caller, worker_id: str) -> WorkerLink:
    link = who.manager.workers.get(worker_id)
    if link.worker.node_id != who.key.node_id:
        raise Forbidden("this worker belongs to another node")
    return link


@router.post("/workers/{worker_id}/trees", include_in_schema=False)
async def keep(worker_id: str, request: Request, who: OwnNode) -> Response:
    link = _own(who, worker_id)
    said = await read(request, KeepRequest)
    _id(said.task_id)
    row = await who.manager.output.artifacts.save(link, said)
    return answer(TreeOut(row.digest, row.files, row.size), 201)


@router.get("/workers/{worker_id}/checkpoints/{task_id}", include_in_schema=False)
async def checkpoint(
    worker_id: str, task_id: str, who: OwnNode, attempt: Attempt = None
) -> Response:
    link = _own(who, worker_id)
    row = await who.manager.output.artifacts.checkpoint(
        link, _id(task_id), attempt or 0
    )
    told = TreeOut(row.digest, row.files, row.size) if row else TreeOut(None)
    return answer(told)

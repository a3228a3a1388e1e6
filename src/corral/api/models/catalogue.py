"""/models: the catalogue. People add models to it, nodes ask it for their files."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.models import shapes
from corral.api.openapi import described
from corral.api.output.objects import BINARY
from corral.core.access.key import Scope
from corral.core.models.catalogue import CatalogueModel, Measure, ModelFile
from corral.core.models.model import HeldModel
from corral.errors import Forbidden, InvalidField
from corral.manager.models.catalogue import Catalogue
from corral.wire.models import (
    CatalogueInfo,
    CataloguePage,
    ManifestFile,
    ModelFileInfo,
    ModelManifest,
    ModelMeasure,
    ModelPlace,
    ModelPull,
    ModelPulls,
)

router = APIRouter(tags=["models"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
OwnNode = Annotated[Caller, Depends(caller(Scope.NODE))]
_RANGE = re.compile(r"bytes=(\d{1,18})-")


def _shown(who: Caller, model: CatalogueModel, *, with_files: bool) -> CatalogueInfo:
    catalogue: Catalogue = who.manager.models.catalogue
    done, total = catalogue.done.get(model.name, (None, None))
    holding = catalogue.holders(model.name)
    files = model.files if with_files else ()
    return CatalogueInfo.of(
        model,
        type=model.model_type,
        memory_mb=model.needs_mb,
        usage_count=model.uses,
        last_used=model.last_used_at,
        workers=[link.id for link in holding],
        measures=[_measure(m) for m in model.measures],
        files=[ModelFileInfo.of(file) for file in files],
        read_bytes=done,
        total_bytes=total,
        placed=[_placed(link.id, link.shelf.held[model.name]) for link in holding],
    )


def _measure(seen: Measure) -> ModelMeasure:
    peaks = {str(count): memory_mb for count, memory_mb in seen.peaks}
    return ModelMeasure.of(seen, load_time=seen.load_s, batch_memory_mb=peaks)


def _placed(worker_id: str, held: HeldModel) -> ModelPlace:
    return ModelPlace.of(
        held, worker_id=worker_id, memory_mb=held.size_mb, layers=dict(held.layers)
    )


@router.get("/models", summary="The catalogue of models", **described(CataloguePage))
async def list_models(
    who: Reader,
    model_type: Annotated[str | None, Query(alias="type")] = None,
    tag: str | None = None,
    search: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    found = [
        model
        for model in who.manager.models.catalogue.all()
        if (model_type is None or model.model_type == model_type)
        and (tag is None or tag in model.tags)
        and (search is None or search.lower() in model.name.lower())
    ]
    page = found[offset : offset + limit]
    rows = [_shown(who, model, with_files=False) for model in page]
    return answer(
        CataloguePage(models=rows, total=len(found), limit=limit, offset=offset)
    )


@router.post(
    "/models",
    summary="Add a model to the catalogue, or read its source anew",
    **described(
        CatalogueInfo,
        body=shapes.ModelIn,
        status=201,
        errors=(400, 404, 422),
        example={"name": "llama", "type": "llm", "source": "model-manager"},
    ),
)
async def add(request: Request, who: Operator) -> Response:
    told = await read(request, shapes.ModelIn)
    model = CatalogueModel(
        told.name,
        told.type,
        told.source,
        told.revision,
        files=tuple(
            ModelFile(f.name, f.size, f.sha256, tuple(f.parts)) for f in told.files
        ),
        trust_remote_code=told.trust_remote_code,
        dtype=told.dtype,
        memory_mb=told.memory_mb,
        tags=tuple(told.tags),
    )
    is_admin = who.key.allows(Scope.ADMIN)
    found = await who.manager.models.catalogue.add(model, is_admin=is_admin)
    who.note("model.add", told.name, source=told.source)
    return answer(_shown(who, found, with_files=True), 201)


@router.get(
    "/models/{name}",
    summary="A model of the catalogue, with its files",
    **described(CatalogueInfo, errors=(404,)),
)
async def show(name: str, who: Reader) -> Response:
    model = who.manager.models.catalogue.find(name)
    return answer(_shown(who, model, with_files=True))


@router.delete(
    "/models/{name}",
    summary="Take a model out of the catalogue",
    **described(shapes.ModelRemoved, errors=(404, 409)),
)
async def remove(name: str, who: Operator) -> Response:
    await who.manager.models.catalogue.remove(name)
    who.note("model.remove", name)
    return answer(shapes.ModelRemoved(f"{name} is no longer in the catalogue", name))


@router.post(
    "/models/{name}/pull",
    summary="Have nodes fetch a model's files",
    **described(
        ModelPulls,
        body=shapes.PullIn,
        errors=(400, 404, 409, 422),
        example={"node_ids": ["n-0123456789"]},
    ),
)
async def pull(request: Request, name: str, who: Operator) -> Response:
    told = await read(request, shapes.PullIn)
    found = await who.manager.models.catalogue.pull(name, told.node_ids)
    who.note("model.pull", name, node_ids=[p.node_id for p in found])
    return answer(ModelPulls(model_name=name, pulls=[ModelPull.of(p) for p in found]))


@router.get("/workers/{worker_id}/models/{name}", include_in_schema=False)
async def bill(worker_id: str, name: str, who: OwnNode) -> Response:
    _check_own(who, worker_id)
    found = await who.manager.models.catalogue.bill(name, who.key.node_id or "")
    model = found.model
    files = [
        ManifestFile.of(
            file,
            url=found.urls.get(file.name),
            peers=found.peers.get(file.name, []),
        )
        for file in model.files
    ]
    return answer(ModelManifest.of(model, type=model.model_type, files=files))


@router.get(
    "/workers/{worker_id}/models/{name}/files/{file:path}", include_in_schema=False
)
async def file_of(
    request: Request, worker_id: str, name: str, file: str, who: OwnNode
) -> Response:
    _check_own(who, worker_id)
    asked = request.headers.get("range")
    match = _RANGE.fullmatch(asked) if asked else None
    start = int(match[1]) if match else 0
    found, pieces = await who.manager.models.catalogue.open_file(name, file, start)
    if start > found.size:
        raise InvalidField(f"{file} has {found.size} bytes", field="range")
    headers = {"Content-Length": str(found.size - start)}
    if match:
        headers["Content-Range"] = f"bytes {start}-{found.size - 1}/{found.size}"
    # The first one before the answer begins: it can still be an error.
    first = await anext(pieces, b"")
    return StreamingResponse(
        _whole(first, pieces), 206 if match else 200, media_type=BINARY, headers=headers
    )


async def _whole(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _check_own(who: Caller, worker_id: str) -> None:
    link = who.manager.workers.get(worker_id)
    if link.worker.node_id != who.key.node_id:
        raise Forbidden("this worker belongs to another node")

"""/v1: models, completions and embeddings as clients of the OpenAI API ask for them.

A request becomes tasks like any others, and waits for them. Who hangs up cancels them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openai import answer as render
from corral.api.openai import shapes
from corral.api.openai.ask import ModelRequest, chat_ask, completion_ask, embeddings_ask
from corral.api.openai.stream import HEARTBEAT_S, CompletionEvents, events
from corral.api.openapi import described
from corral.api.output.stream import EVENTS
from corral.api.tasks.routes import intake_of
from corral.core.access.key import Scope
from corral.core.tasks.task import Task
from corral.errors import CorralError, NotFound
from corral.manager.app import Manager

router = APIRouter(prefix="/v1", tags=["openai"])
Submitter = Annotated[Caller, Depends(caller(Scope.SUBMIT))]
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
_HELLO = [{"role": "user", "content": "Hello"}]
T = TypeVar("T")


@router.get(
    "/models",
    summary="Models that can be asked for",
    **described(shapes.OpenAIModelListOut, is_openai=True),
)
async def models(who: Reader) -> Response:
    found = who.manager.models.known()
    rows = [
        shapes.OpenAIModelOut(name, int(at.timestamp())) for name, at in found.items()
    ]
    return answer(shapes.OpenAIModelListOut(rows))


@router.get(
    "/models/{name:path}",
    summary="One model",
    **described(shapes.OpenAIModelOut, errors=(404,), is_openai=True),
)
async def one_model(name: str, who: Reader) -> Response:
    at = _known(who.manager, name)
    return answer(shapes.OpenAIModelOut(name, at))


@router.post(
    "/chat/completions",
    summary="An answer to messages; with stream, as server-sent events",
    **described(
        shapes.ChatOut,
        body=shapes.ChatIn,
        errors=(400, 404, 413),
        example={"model": "my-llama", "messages": _HELLO},
        is_openai=True,
    ),
)
async def chat(request: Request, who: Submitter) -> Response:
    ask = chat_ask(await read(request, shapes.ChatIn))
    if ask.is_streamed:
        return await _streamed(request, who, ask, is_chat=True)
    tasks = await _answered(request, who, ask)
    said = [render.said_by(task) for task in tasks]
    return answer(render.chat(tasks[0].id, _now(who), ask.model, said))


@router.post(
    "/completions",
    summary="Text that goes on from a prompt; with stream, as server-sent events",
    **described(
        shapes.CompletionOut,
        body=shapes.CompletionIn,
        errors=(400, 404, 413),
        example={"model": "my-llama", "prompt": "Once upon a time"},
        is_openai=True,
    ),
)
async def completions(request: Request, who: Submitter) -> Response:
    ask = completion_ask(await read(request, shapes.CompletionIn))
    if ask.is_streamed:
        return await _streamed(request, who, ask, is_chat=False)
    tasks = await _answered(request, who, ask)
    said = [render.said_by(task) for task in tasks]
    return answer(render.completion(tasks[0].id, _now(who), ask.model, said))


@router.post(
    "/embeddings",
    summary="Texts as vectors",
    **described(
        shapes.EmbeddingsOut,
        body=shapes.EmbeddingsIn,
        errors=(400, 404, 413),
        example={"model": "my-embedder", "input": ["one text", "another"]},
        is_openai=True,
    ),
)
async def embeddings(request: Request, who: Submitter) -> Response:
    told = await read(request, shapes.EmbeddingsIn)
    ask = embeddings_ask(told)
    tasks = await _answered(request, who, ask)
    found = render.vectors_of(tasks[0])
    found.check(told.dimensions)
    return answer(render.embeddings(ask.model, found, told.encoding_format))


async def _answered(request: Request, who: Caller, ask: ModelRequest) -> Sequence[Task]:
    """The tasks once they have all ended."""
    ids = await _submit(request, who, ask)
    ended = who.manager.tasks.reads.until_ended(ids)
    await _while_here(request, who.manager, ids, ended)
    return [await who.manager.tasks.get(task_id) for task_id in ids]


async def _streamed(
    request: Request, who: Caller, ask: ModelRequest, *, is_chat: bool
) -> Response:
    (task_id,) = await _submit(request, who, ask)
    reader = who.manager.output.stream.reader(task_id)
    # What fails before the first word gets a status of its own.
    first = reader.next(HEARTBEAT_S)
    page = await _while_here(request, who.manager, [task_id], first)
    if page.ended is not None:
        render.check(page.ended)
    telling = CompletionEvents(
        task_id, _now(who), ask.model, is_chat=is_chat, wants_usage=ask.wants_usage
    )
    return StreamingResponse(
        events(who.manager.tasks, reader, task_id, telling, page),
        media_type="text/event-stream",
        headers=EVENTS,
    )


async def _submit(request: Request, who: Caller, ask: ModelRequest) -> list[str]:
    _known(who.manager, ask.model)
    intake = intake_of(who, request)
    about = {"task_type": ask.job_type, "model_name": ask.model}
    specs = [
        intake.one(msgspec.json.encode({**about, "parameters": payload}))
        for payload in ask.payloads
    ]
    ids: list[str] = []
    refused: CorralError | None = None
    for result in await who.manager.tasks.submit(specs):
        if isinstance(result, CorralError):
            refused = refused or result
        else:
            ids.append(result.task.id)
            who.note("task.submit", result.task.id)
    if refused is not None:
        _give_up(who.manager, ids)
        raise refused
    who.wait()
    return ids


async def _while_here(
    request: Request, manager: Manager, ids: Sequence[str], work: Coroutine[Any, Any, T]
) -> T:
    """Do it unless the caller goes away: then nobody wants the tasks any more."""
    doing = asyncio.create_task(work)
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise ClientDisconnect
    finally:
        if not doing.done():
            _give_up(manager, ids)
        for each in (doing, leaving):
            each.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _give_up(manager: Manager, ids: Sequence[str]) -> None:
    if not manager.output.logs.is_closing:
        for task_id in ids:
            manager.tasks.give_up(task_id)


def _known(manager: Manager, name: str) -> int:
    """Since when a model is known; raises NotFound."""
    at = manager.models.known().get(name)
    if at is None:
        raise NotFound(
            f"the model {name[:200]!r} does not exist; GET /v1/models lists those "
            "that do",
            field="model",
        )
    return int(at.timestamp())


def _now(who: Caller) -> int:
    return int(who.manager.now().timestamp())

"""/tasks/{id}/exec: commands run beside a running script, and what they print.

Output is read in pieces by long poll, so that a broken connection loses nothing.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import Struct

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.workers.routes import OwnNode, own_worker
from corral.core.access.key import Scope
from corral.errors import InvalidField
from corral.manager.output.exec import ExecUpdate
from corral.wire.output import ExecInfo, ExecOutput, ExecPage

router = APIRouter(tags=["tasks"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
MAX_BYTES = 64 * 1024
_NOTED_BYTES = 1000


class ExecIn(Struct, forbid_unknown_fields=True):
    """The program and its arguments; no shell reads them."""

    command: list[str]


class ExecStopped(Struct):
    message: str
    exec_id: str


class ExecUpdateIn(Struct):
    """What the worker says; see worker/script/exec.py."""

    number: int
    chunks: list[tuple[str, bytes]] = []
    exit_code: int | None = None
    error: str | None = None


class ExecUpdateOut(Struct):
    stop: bool


@router.post(
    "/tasks/{task_id}/exec",
    summary="Run a command beside a running script",
    **described(
        ExecInfo,
        body=ExecIn,
        status=201,
        errors=(404, 409),
        example={"command": ["nvidia-smi"]},
    ),
)
async def start(task_id: str, request: Request, who: Operator) -> Response:
    command = _checked((await read(request, ExecIn)).command)
    shown = " ".join(command)[:_NOTED_BYTES]
    # Before it runs: also what never comes back is in the trail.
    who.note("task.exec", task_id, command=shown)
    run = await who.manager.output.execs.start(task_id, command)
    return answer(ExecInfo.of(run, exec_id=run.id), 201)


def _checked(command: list[str]) -> list[str]:
    if not command or not command[0]:
        raise InvalidField("there is no command", field="command")
    if any("\0" in word for word in command):
        raise InvalidField("a command has no NUL character", field="command")
    if sum(len(word) for word in command) > MAX_BYTES:
        raise InvalidField(
            f"a command has at most {MAX_BYTES} characters", field="command"
        )
    return command


@router.get(
    "/tasks/{task_id}/exec/{exec_id}",
    summary="What a command printed since, or its end",
    **described(ExecPage, errors=(404, 422)),
)
async def output(
    task_id: str,
    exec_id: str,
    who: Operator,
    after: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
    wait: Annotated[float, Query(ge=0, le=60)] = 0.0,
) -> Response:
    run, chunks = await who.manager.output.execs.read(task_id, exec_id, after, wait)
    return answer(
        ExecPage(
            chunks=[ExecOutput(stream=stream, data=data) for stream, data in chunks],
            next=run.taken + len(chunks),
            done=run.is_ended or run.is_stopped,
            exit_code=run.exit_code,
            error=run.error,
        )
    )


@router.delete(
    "/tasks/{task_id}/exec/{exec_id}",
    summary="End a command",
    **described(ExecStopped, errors=(404,)),
)
async def stop(task_id: str, exec_id: str, who: Operator) -> Response:
    who.manager.output.execs.stop(task_id, exec_id)
    who.note("task.exec.stop", task_id, exec_id=exec_id)
    return answer(ExecStopped("the command is being ended", exec_id))


@router.post("/workers/{worker_id}/execs/{exec_id}", include_in_schema=False)
async def hear(
    worker_id: str, exec_id: str, request: Request, who: OwnNode
) -> Response:
    link = own_worker(who, worker_id)
    said = await read(request, ExecUpdateIn)
    word = ExecUpdate(said.number, said.chunks, said.exit_code, said.error)
    return answer(
        ExecUpdateOut(await who.manager.output.execs.hear(link, exec_id, word))
    )

"""/secrets: named values for jobs. They go in, and come out to the job's worker alone.

No answer here has a value but the one to the worker that holds the attempt.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Struct

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.workers.routes import OwnNode, own_worker
from corral.core.access.key import Scope
from corral.wire.access import SecretInfo, SecretList

router = APIRouter(tags=["secrets"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]


class SecretIn(Struct, forbid_unknown_fields=True):
    """Only tasks of `job_types`, submitted with one of the `keys`, on nodes with the
    `node_labels` may have it; an empty one lets all, one left out stays as it was.
    """

    name: str
    value: str
    job_types: list[str] | None = None
    keys: list[str] | None = None
    node_labels: dict[str, str] | None = None


class SecretRemoved(Struct):
    message: str
    name: str


class AttemptIn(Struct):
    task_id: str
    attempt: int


class ValuesOut(Struct):
    """Values by the variable that is to hold them."""

    values: dict[str, str]


@router.get(
    "/secrets",
    summary="Names of the secrets this key's tasks may have",
    **described(SecretList),
)
async def list_secrets(who: Reader) -> Response:
    known = who.manager.access.secrets.known(who.key)
    return answer(SecretList(secrets=[SecretInfo.of(secret) for secret in known]))


@router.post(
    "/secrets",
    summary="Set a secret, or give it another value",
    **described(
        SecretInfo,
        body=SecretIn,
        status=201,
        example={"name": "HF_TOKEN", "value": "what nobody else should know"},
    ),
)
async def set_secret(request: Request, who: Admin) -> Response:
    told = await read(request, SecretIn)
    secret, is_new = await who.manager.access.secrets.put(
        told.name,
        told.value,
        job_types=told.job_types,
        keys=told.keys,
        node_labels=told.node_labels,
    )
    who.note(
        "secret.set",
        secret.name,
        job_types=list(secret.job_types),
        keys=list(secret.keys),
        node_labels=dict(secret.node_labels),
    )
    return answer(SecretInfo.of(secret), 201 if is_new else 200)


@router.delete(
    "/secrets/{name}",
    summary="Remove a secret",
    **described(SecretRemoved, errors=(404,)),
)
async def remove_secret(name: str, who: Admin) -> Response:
    await who.manager.access.secrets.remove(name)
    who.note("secret.remove", name)
    return answer(SecretRemoved("the secret is removed", name))


@router.post("/workers/{worker_id}/secrets", include_in_schema=False)
async def give_secrets(worker_id: str, request: Request, who: OwnNode) -> Response:
    link = own_worker(who, worker_id)
    told = await read(request, AttemptIn)
    values = await who.manager.access.secrets.give(link, told.task_id, told.attempt)
    who.note("secret.give", told.task_id, worker_id=worker_id, variables=sorted(values))
    return answer(ValuesOut(dict(values)))

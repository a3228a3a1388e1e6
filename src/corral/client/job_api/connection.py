"""A service of the job API as Python code holds it: every endpoint is a method.

By its own name it blocks, with the prefix `a` it is a coroutine. What a service can do
is a table of verbs; nothing here knows which service it is.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import msgspec
from pydantic import BaseModel

from corral.client.client import Client
from corral.client.http.endpoint import Flow, Request
from corral.client.http.errors import decode
from corral.client.job_api.launch import LaunchedProcess
from corral.errors import CorralError, InvalidField, Unreachable
from corral.wire import job_api as values

_TIMEOUT_S = 30.0
"""How long the client itself waits for an answer."""
_GONE_S = 20.0


@dataclass(frozen=True, slots=True)
class Verb:
    """An endpoint: what it answers with, and its fields, the `needs` first required."""

    kind: type | None = None
    fields: tuple[str, ...] = ()
    needs: int = 0


SERVICE: Mapping[str, Verb] = {
    "endpoints": Verb(values.Endpoints),
    "status": Verb(values.ServiceStatus),
    "heartbeat": Verb(values.HeartbeatAnswer),
    "server_id": Verb(values.ServerId),
    "class_name": Verb(values.ClassName),
    "pid_file": Verb(values.PidFile),
}


class Connection:
    """A service that runs somewhere; as a context manager it is shut down after."""

    verbs: ClassVar[Mapping[str, Verb]] = SERVICE

    def __init__(
        self, url: str, client: Client | None, process: LaunchedProcess | None = None
    ) -> None:
        self.url = url
        self._given = client
        self._process = process

    @property
    def _client(self) -> Client:
        if self._given is None:
            assert self._process is not None
            self._given = self._process.client
        return self._given

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self.verbs:
            return functools.partial(self.call, name)
        if name.startswith("a") and name[1:] in self.verbs:
            return functools.partial(asyncio.to_thread, self.call, name[1:])
        if name == "ashutdown":
            return functools.partial(asyncio.to_thread, self.shutdown)
        raise AttributeError(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.verbs, *(f"a{name}" for name in self.verbs)]

    def call(
        self,
        name: str,
        /,
        *args: Any,
        validate_input: bool = True,
        validate_output: bool = True,
        timeout: float | None = None,
        **fields: Any,
    ) -> Any:
        """Call an endpoint with its fields, or with one model as its body.

        Args:
            name: The endpoint.
            *args: One model, or fields in their order.
            validate_input: Look for fields that lack before anything is sent.
            validate_output: Answer with a value that has attributes; else with
                plain JSON.
            timeout: How many seconds the answer may take.
            **fields: The endpoint's fields by name.
        """
        verb = self.verbs[name]
        body = _body(name, verb, args, fields)
        if validate_input:
            _check(name, verb, body)
        kind = verb.kind if validate_output else object
        return self._client.drive(_flow(name, body, kind, timeout))

    def shutdown(self, block: bool = True) -> None:
        """Stop the service; what it stored stays."""
        if self._process is not None:
            self._process.stop(block=block)
        else:
            self._client.drive(_flow("shutdown", {}, None, None))
            if block:
                self._await_end()
        self.close()

    def _await_end(self) -> None:
        from corral.client.job_api.launch import await_end

        await_end(self.url, _GONE_S)

    def close(self) -> None:
        """Let go of the service, which goes on."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()


def reach(url: str, client: Client) -> Client:
    """The client, once something answers there.

    Raises:
        Unreachable: nothing does; its `status` is 503, as a gateway would say.
    """
    try:
        client.drive(_flow("status", {}, None, None))
    except Unreachable as error:
        client.close()
        raise Unreachable(error.message, url=url, status=503) from error
    except CorralError:
        client.close()
        raise
    return client


def _body(name: str, verb: Verb, args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    if len(args) == 1 and isinstance(args[0], BaseModel | Mapping):
        if fields:
            raise TypeError(f"{name}: give fields or one model, not both")
        model = args[0]
        if isinstance(model, BaseModel):
            return model.model_dump(mode="json")
        return model
    if len(args) > len(verb.fields):
        raise TypeError(f"{name} takes {len(verb.fields)} fields by place at most")
    placed = dict(zip(verb.fields, args, strict=False))
    if twice := placed.keys() & fields.keys():
        raise TypeError(f"{name} got {', '.join(sorted(twice))} twice")
    return {**placed, **fields}


def _check(name: str, verb: Verb, body: Any) -> None:
    for field in verb.fields[: verb.needs]:
        if field not in body:
            raise InvalidField(f"{name} needs {field}", field=field, status=422)


def _flow(name: str, body: Any, kind: type | None, timeout: float | None) -> Flow[Any]:
    try:
        text = msgspec.json.encode(body)
    except (TypeError, ValueError) as error:
        raise CorralError(f"{name}: JSON has no form for this: {error}") from error
    more_s = 0.0 if timeout is None else timeout - _TIMEOUT_S
    response = yield Request("POST", f"/{name}", body=text, wait_s=more_s)
    return None if kind is None else decode(response, kind)

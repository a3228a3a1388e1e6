"""What an administrator says about servers: for all models of a worker, and for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from corral.errors import WorkerError
from corral.worker.inference.errors import one_line
from corral.worker.inference.load.resolve import Definition

Replicas = Annotated[int, Meta(ge=1, le=64)]
Seconds = Annotated[float, Meta(gt=0.0)]
_OF_MODEL = frozenset(Definition.__struct_fields__)


class ServerOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How a model is served; what a model's definition leaves out, the worker's
    parameters say.

    One of `server` (a program that is known), `command` (one's own, with fields in
    braces) and `url` (a server that somebody else runs). `resume` is how a chat goes on
    that was cut in the middle. `api_key_variable` names the variable of the runner's
    environment that has the key for `url`.
    """

    server: str | None = None
    command: list[str] | None = None
    url: str | None = None
    args: list[str] = []
    environment: dict[str, str] = {}
    replicas: Replicas | None = None
    served_name: str | None = None
    resume: str | None = None
    api_key_variable: str | None = None
    start_timeout_s: Seconds | None = None
    stop_timeout_s: Seconds | None = None
    hung_timeout_s: Seconds | None = None

    @property
    def is_placed(self) -> bool:
        """Does it say what serves?"""
        return any(x is not None for x in (self.server, self.command, self.url))


class ServerParams(ServerOptions, kw_only=True, forbid_unknown_fields=True):
    """`models` are definitions by name; `model` is used by tasks that name none."""

    models: dict[str, Any] = {}
    model: str | None = None
    model_dir: str | None = None


class ServedModel(ServerOptions, kw_only=True, forbid_unknown_fields=True):
    """A model's definition. `file` is the one of its folder that is loaded; the rest
    is as for models that `InferenceWorker` holds.
    """

    file: str | None = None
    folder: str | None = None
    type: str | None = None
    dtype: str | None = None
    size_mb: float | None = None
    trust_remote_code: bool = False
    files: dict[str, str] = {}

    def definition(self) -> dict[str, Any]:
        """What it says of the model itself; empty where that is nothing."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        plain = msgspec.to_builtins(ServedModel())
        return {k: told[k] for k in _OF_MODEL if told.get(k) != plain.get(k)}


def read_params(told: Mapping[str, Any]) -> ServerParams:
    """The worker's parameters.

    Raises:
        WorkerError: which of them is wrong.
    """
    try:
        params = msgspec.convert(dict(told), ServerParams)
    except msgspec.ValidationError as error:
        raise WorkerError(f"parameters of ServerWorker: {error}") from None
    _check(params, "parameters of ServerWorker")
    return params


def read_models(told: Mapping[str, Any]) -> dict[str, ServedModel]:
    """Definitions by name.

    Raises:
        WorkerError: which of them is wrong.
    """
    found = {}
    for name, definition in told.items():
        try:
            found[name] = msgspec.convert(definition, ServedModel)
        except msgspec.ValidationError as error:
            text = f"definition of model {name}: {one_line(error)}"
            raise WorkerError(text) from None
        _check(found[name], f"definition of model {name}")
    return found


def _check(serving: ServerOptions, where: str) -> None:
    given = [k for k in ("server", "command", "url") if getattr(serving, k) is not None]
    if len(given) > 1:
        raise WorkerError(f"{where}: give one of {' and '.join(given)}, not both")
    if serving.command is not None and not serving.command:
        raise WorkerError(f"{where}: command is empty")


def merged(params: ServerParams, own: ServedModel) -> ServerOptions:
    """A model's own words in front of those for all models."""
    fields = {f: getattr(own, f) for f in ServerOptions.__struct_fields__}
    for name in ServerOptions.__struct_fields__:
        # Who says what serves this model does not mean the other thing as well.
        is_place = name in ("server", "command", "url")
        if fields[name] is None and not (is_place and own.is_placed):
            fields[name] = getattr(params, name)
    fields["args"] = [*params.args, *own.args]
    fields["environment"] = {**params.environment, **own.environment}
    return ServerOptions(**fields)

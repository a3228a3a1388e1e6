"""The worker that runs functions marked with `@corral.task`, one bundle a process.

Its runner is started in the bundle's folder. It calls nothing but marked functions of
that folder: who may submit a task may not thereby run whatever is installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import CoroutineType
from typing import Any

import msgspec

from corral.errors import WorkerError
from corral.worker.base import Worker
from corral.worker.builtin import EchoWorker

_USAGE = (
    'a function needs a payload like {"archive": DIGEST, "module": "my.module", '
    '"function": "name", "args": [], "kwargs": {}}'
)


class _Call(msgspec.Struct):
    archive: str
    module: str
    function: str
    path: str = ""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class FunctionWorker(Worker):
    """Runs functions of the archive its runner was started for."""

    def __init__(self, archive: str = "", path: str = "", **params: Any) -> None:
        super().__init__(**params)
        self._bundle = (archive, path)
        self._folder = Path.cwd()
        self._found: dict[tuple[str, str], Callable[..., Any]] = {}

    def run(self, payload: Any) -> Any:
        try:
            call = msgspec.convert(payload, _Call)
        except msgspec.ValidationError as error:
            raise WorkerError(f"{error}: {_USAGE}") from None
        if (call.archive, call.path) != self._bundle:
            raise WorkerError("this process has other code than the task's")
        name = (call.module, call.function)
        body = self._found.get(name)
        if body is None:
            body = self._found[name] = self._find(*name)
        output = body(*call.args, **call.kwargs)
        return _await(output) if isinstance(output, CoroutineType) else output

    def _find(self, module: str, name: str) -> Callable[..., Any]:
        from corral.client.functions.function import Function
        from corral.client.functions.source import importing

        self._check_module(module)
        with importing():
            home = import_module(module)
        found = vars(home).get(name)
        if not isinstance(found, Function):
            raise WorkerError(
                f"{module} has no task {name!r}: write @corral.task above the function"
            )
        return found.__wrapped__

    def _check_module(self, module: str) -> None:
        """Is it of the bundle? Looked up without importing it."""
        top = module.partition(".")[0]
        try:
            spec = importlib.util.find_spec(top) if top else None
        except ValueError:
            spec = None
        if spec is None:
            raise WorkerError(f"the task's code has no module {module!r}")
        places = [spec.origin] if spec.has_location else []
        places += list(spec.submodule_search_locations or ())
        inside = (Path(place).is_relative_to(self._folder) for place in places if place)
        if not any(inside):
            raise WorkerError(
                f"module {top!r} is installed on the node under the same name as the "
                "task's own: give it another name"
            )


def _await(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    import asyncio  # most functions need none of it

    return asyncio.run(coroutine)


class StandardWorker(FunctionWorker):
    """What a machine runs unless told otherwise: `echo`, and functions."""

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._echo = EchoWorker()

    def run(self, payload: Any) -> Any:
        if self.context.job_type == "echo":
            return self._echo._run(payload)["output"]
        return super().run(payload)

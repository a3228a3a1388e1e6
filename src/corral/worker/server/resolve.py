"""From a model's name to all that its servers are started and asked with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from corral.errors import WorkerError
from corral.worker.base import Failure
from corral.worker.inference.errors import Unusable
from corral.worker.inference.kind import ModelKind, kind_named
from corral.worker.inference.load import weights
from corral.worker.inference.load.resolve import FolderResolver, ModelRef, Resolver
from corral.worker.runner.gpu_memory import CARDS
from corral.worker.server import program
from corral.worker.server.params import ServedModel, ServerOptions, ServerParams, merged

_HALF = 2
# Those that show a process its cards.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """The servers of one model. `command` is empty where somebody else runs it."""

    name: str
    kind: ModelKind
    command: tuple[str, ...] = ()
    url: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    replicas: int = 1
    served_name: str | None = None
    key: str | None = field(default=None, repr=False)
    dialect: program.Dialect = field(default_factory=program.Dialect)
    size_mb: float | None = None
    start_timeout_s: float = 600.0
    stop_timeout_s: float = 10.0
    hung_timeout_s: float = 120.0

    def filled(self, port: int) -> list[str]:
        return program.fill(self.command, {**self.values, "port": str(port)})

    def environment_of(self, replica: int) -> dict[str, str]:
        """With the cards of one replica: its own where there are enough of them."""
        own = {**os.environ, **self.environment}
        for name in _VISIBLE:
            cards = own.get(name, "").split(",")
            each = len(cards) // self.replicas
            if self.replicas > 1 and each:
                mine = cards[replica * each : (replica + 1) * each]
                own[name] = ",".join(mine)
                if name.startswith("ROCR"):
                    # HIP counts among what ROCR has left over.
                    own["HIP_VISIBLE_DEVICES"] = ",".join(map(str, range(len(mine))))
        return own


class ServedModels:
    """Models that can be served: those defined, and those that `resolver` finds."""

    def __init__(
        self,
        params: ServerParams,
        models: Mapping[str, ServedModel],
        resolver: Resolver,
        folder: Path,
    ) -> None:
        self._params = params
        self._models = models
        self._resolver = resolver
        self._folder = folder

    def check(self) -> None:
        """Can anything be served at all?

        Raises:
            WorkerError: nothing says what serves, or it cannot.
        """
        if not self._params.is_placed and not self._models:
            raise WorkerError(
                "parameters of ServerWorker: give a server (vllm, llama.cpp), a "
                "command or a url"
            )
        for name, own in {"": ServedModel(), **self._models}.items():
            told = merged(self._params, own)
            try:
                _dialect(told)
                self._is_of_files(told)
                if told.url is not None:
                    _checked(told.url)
            except Failure as error:
                where = f"definition of model {name}" if name else "parameters"
                raise WorkerError(f"{where} of ServerWorker: {error}") from None

    def spec(self, name: str) -> ServerSpec:
        """What is needed to serve a model, whose files have been looked at.

        Raises:
            Unusable: it is unknown or broken, or nothing says what serves it.
        """
        own = self._models.get(name) or ServedModel()
        told = merged(self._params, own)
        known = program.program_named(told.server) if told.server else program.OWN
        dialect = _dialect(told)
        if told.url is not None:
            made = ServerSpec(name, _kind(name, own), url=_checked(told.url))
        else:
            made = self._started(name, own, told, known)
        return _completed(made, own, told, dialect)

    def sizes(self) -> dict[str, float]:
        """MB by model, as far as they can be told before any load."""
        found = {}
        for name in sorted({*self._models, *self._resolved_names()}):
            with contextlib.suppress(Failure, OSError):
                if (size := self._size(name)) is not None:
                    found[name] = size
        return found

    def _size(self, name: str) -> float | None:
        own = self._models.get(name) or ServedModel()
        told = merged(self._params, own)
        if not told.is_placed:
            return None
        if own.size_mb is not None:
            return own.size_mb
        if told.url is not None:
            return 0.0
        if not self._is_of_files(told):
            # On cards, what nobody knows gets one to itself the first time.
            return None if os.environ.get(CARDS) else 0.0
        ref = self._resolve(name)
        return ref.size_mb or _weights_mb(ref.folder)

    def _started(
        self, name: str, own: ServedModel, told: ServerOptions, known: program.Program
    ) -> ServerSpec:
        if not told.is_placed:
            text = f"nothing says what serves model {name}: give server, command or url"
            raise Unusable(text, "unsupported_model")
        command = list(known.command or told.command or ())
        gpus = gpus_each(os.environ, told.replicas or 1)
        values = {"name": name, "gpus": str(gpus)}
        kind, size_mb = _kind(name, own), own.size_mb
        if self._is_of_files(told):
            ref = self._resolve(name)
            weights.verify(ref.folder, ref.files)
            kind, size_mb = ref.kind, ref.size_mb
            values["folder"] = str(ref.folder)
            if "file" in program.fields_of(command):
                values["file"] = str(_model_file(ref.folder, own.file))
            command += program.options(told.server, ref, gpus)
        command += told.args
        program.fields_of(command)
        path = told.environment.get("PATH", os.environ.get("PATH"))
        program.check_program(command[0], path, known.install)
        return ServerSpec(name, kind, tuple(command), values=values, size_mb=size_mb)

    def _is_of_files(self, told: ServerOptions) -> bool:
        """Does its command name the model's files?"""
        known = program.program_named(told.server) if told.server else program.OWN
        command = [*(known.command or told.command or ()), *told.args]
        return bool(program.fields_of(command) & {"folder", "file"})

    def _resolve(self, name: str) -> ModelRef:
        try:
            return self._resolver.resolve(name)
        except Unusable as error:
            folder = self._folder / Path(name).name
            is_bare = error.kind == "unsupported_model" and any(folder.glob("*.gguf"))
            if not is_bare:
                raise
        # Such a file says itself what it is, but only to who loads it.
        return FolderResolver([self._folder], {name: {"type": "generate"}}).resolve(
            name
        )

    def _resolved_names(self) -> Iterator[str]:
        """Folders that nobody has defined are served when the parameters say by what,
        and it is told which folder.
        """
        told = merged(self._params, ServedModel())
        if not told.is_placed or told.url is not None or not self._is_of_files(told):
            return
        yield from self._resolver.names()
        if self._folder.is_dir():
            for folder in self._folder.iterdir():
                if folder.is_dir() and any(folder.glob("*.gguf")):
                    yield folder.name


def cards_in(environment: Mapping[str, str]) -> list[str]:
    """Ids of the cards that this worker was given."""
    return [card for card in environment.get(CARDS, "").split(",") if card]


def gpus_each(environment: Mapping[str, str], replicas: int) -> int:
    """How many of the worker's cards one replica has, or shares."""
    cards = cards_in(environment)
    return max(len(cards) // replicas, 1) if cards else 0


def _kind(name: str, own: ServedModel) -> ModelKind:
    """Of a model without files: what its definition says, else it writes text."""
    kind = kind_named(own.type or ModelKind.GENERATE)
    if kind is None:
        text = f"model {name} has the unknown type {own.type!r}"
        raise Unusable(f"{text}; known: {', '.join(ModelKind)}", "unsupported_model")
    return kind


def _completed(
    made: ServerSpec, own: ServedModel, told: ServerOptions, dialect: program.Dialect
) -> ServerSpec:
    variable = told.api_key_variable
    if variable and variable not in os.environ:
        raise Unusable(
            f"variable {variable} is not set for workers of this node: set it there, "
            "and name it in CORRAL_WORKER_ENV",
            "unsupported_model",
        )
    given = {
        name: value
        for name in ("start_timeout_s", "stop_timeout_s", "hung_timeout_s")
        if (value := getattr(told, name)) is not None
    }
    return replace(
        made,
        environment=told.environment,
        replicas=told.replicas or 1,
        served_name=told.served_name,
        key=os.environ.get(variable) if variable else None,
        dialect=dialect,
        size_mb=made.size_mb if own.size_mb is None else own.size_mb,
        **given,
    )


def _dialect(told: ServerOptions) -> program.Dialect:
    known = program.program_named(told.server) if told.server else program.OWN
    if told.resume is None:
        return known.dialect
    if told.resume not in program.RESUMES:
        text = f"resume is {told.resume!r}; it must be one of "
        raise Unusable(text + ", ".join(program.RESUMES), "unsupported_model")
    return replace(known.dialect, resume=told.resume)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        text = f"the url {url!r} is not like http://host:port/v1"
        raise Unusable(text, "unsupported_model")
    return url


def _weights_mb(folder: Path) -> float | None:
    packed = sum(file.stat().st_size for file in folder.glob("*.gguf"))
    return packed / weights.MB if packed else weights.size_mb(folder, _HALF)


def _model_file(folder: Path, name: str | None) -> Path:
    """The file of a folder that {file} stands for: the one told, else its .gguf.

    Raises:
        Unusable: it is not there.
    """
    if name is not None:
        found = [folder / name] if (folder / name).is_file() else []
    else:
        found = sorted(folder.glob("*.gguf"))
    if not found:
        what = name or "file that ends in .gguf"
        raise Unusable(f"there is no {what} in {folder}", "corrupt_model")
    # Of a model in parts the first names the others.
    return found[0]

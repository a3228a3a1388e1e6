"""Where a model is: from its name to a folder with its files and what is known of it.

Folders of this machine for now. Whoever fetches models from elsewhere puts another
`Resolver` in the place of this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from corral.core.models.architecture import CONFIG, PIPELINE, type_of_classes
from corral.core.tasks.job_type import NAME
from corral.worker.depot.manifest import ModelNote
from corral.worker.depot.model_folder import Depot
from corral.worker.inference.errors import RequestRefused, Unusable, one_line
from corral.worker.inference.kind import ModelKind, kind_named
from corral.worker.inference.load import weights

_GRAPH = "model.onnx"


class Definition(msgspec.Struct, forbid_unknown_fields=True):
    """What an administrator says about a model, in the worker's parameters.

    Never read from the model's own folder: who wrote that could allow himself
    `trust_remote_code`, which lets code in that folder run in the worker.
    `files` are SHA-256 by file name.
    """

    folder: str | None = None
    type: str | None = None
    dtype: str | None = None
    size_mb: float | None = None
    trust_remote_code: bool = False
    files: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model that is here, ready to be loaded."""

    name: str
    folder: Path
    kind: ModelKind
    is_graph: bool = False
    trust_remote_code: bool = False
    dtype: str | None = None
    size_mb: float | None = None
    files: Mapping[str, str] = field(default_factory=dict)


class Resolver(Protocol):
    """Finds models by name."""

    def resolve(self, name: str) -> ModelRef:
        """The model.

        Raises:
            Unusable: it is unknown, or nobody can tell what it is.
        """

    def names(self) -> Iterator[str]:
        """Every model that could be loaded now."""


class FolderResolver:
    """Models are folders in one of `places`, or where their definitions say."""

    def __init__(self, places: Sequence[Path], told: Mapping[str, Any]) -> None:
        self._places = list(places)
        self._told = {str(name): _define(str(name), d) for name, d in told.items()}

    def resolve(self, name: str) -> ModelRef:
        told = self._told.get(name) or Definition()
        folder = self._find(name, told)
        return ModelRef(
            name,
            folder,
            _kind_of(name, folder, told),
            _is_graph(folder),
            told.trust_remote_code,
            told.dtype,
            told.size_mb,
            told.files,
        )

    def names(self) -> Iterator[str]:
        found = {d.name for place in self._places for d in _folders(place)}
        yield from sorted(found | self._told.keys())

    def _find(self, name: str, told: Definition) -> Path:
        tried = [Path(told.folder)] if told.folder else []
        # A name is one folder's name: it must not lead out of its place.
        if name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}:
            tried += [place / name for place in self._places]
        for folder in tried:
            if folder.is_dir():
                return folder
        where = ", ".join(str(place) for place in self._places) or "no model folder"
        known = ", ".join(self.names()) or "none"
        raise Unusable(
            f"there is no model {name!r} in {where}; known: {known}", "unknown_model"
        )


def _define(name: str, told: Any) -> Definition:
    try:
        return msgspec.convert(told, Definition)
    except msgspec.ValidationError as error:
        raise RequestRefused(f"definition of model {name}: {one_line(error)}") from None


def _folders(place: Path) -> list[Path]:
    if not place.is_dir():
        return []
    marks = (CONFIG, PIPELINE, _GRAPH)
    return [d for d in place.iterdir() if weights.any_file(d, marks)]


def _is_graph(folder: Path) -> bool:
    """Weights that torch could load are preferred to an exported graph."""
    has_graph = (folder / _GRAPH).is_file()
    return has_graph and not any(folder.glob("*.safetensors"))


def _kind_of(name: str, folder: Path, told: Definition) -> ModelKind:
    if told.type is not None:
        kind = kind_named(told.type)
        if kind is None:
            known = ", ".join(ModelKind)
            text = f"model {name} has the unknown type {told.type!r}; known: {known}"
            raise Unusable(text, "unsupported_model")
        return kind
    if (folder / PIPELINE).is_file():
        return ModelKind.DRAW
    config = weights.read_json(folder / CONFIG)
    if not config and not (folder / _GRAPH).is_file():
        text = f"model {name} has neither {CONFIG} nor {PIPELINE} in its folder"
        raise Unusable(text, "unsupported_model")
    made_for = [str(a) for a in config.get("architectures") or []]
    # A model without a head turns text into vectors.
    return kind_named(type_of_classes(made_for)) or ModelKind.EMBED


# Finds models for inference: those of the catalogue that are here, then plain
# folders.


class DepotResolver:
    """A `Resolver` over one folder of models; `told` are definitions that win."""

    def __init__(self, place: Path, told: Mapping[str, Any]) -> None:
        self._place = place
        self._told = dict(told)
        self._depot = Depot(place, 0)
        self._plain = FolderResolver([place], told)

    def resolve(self, name: str) -> ModelRef:
        note = None
        if name not in self._told and NAME.fullmatch(name):
            note = self._depot.note(name)
        if note is None or not Path(note.folder).is_dir():
            return self._plain.resolve(name)
        return FolderResolver([self._place], {name: definition(note)}).resolve(name)

    def names(self) -> Iterator[str]:
        noted = {note.bill.name for note in self._depot.notes()}
        yield from sorted(noted | set(self._plain.names()))


def definition(note: ModelNote) -> dict[str, Any]:
    """What the worker is told of a model, in the words of its parameters."""
    bill = note.bill
    told: dict[str, Any] = {
        "folder": note.folder,
        "trust_remote_code": bill.trust_remote_code,
    }
    if bill.type != "other":
        told["type"] = bill.type
    if bill.dtype is not None:
        told["dtype"] = bill.dtype
    if bill.memory_mb is not None:
        told["size_mb"] = bill.memory_mb
    if not note.is_ours:
        # Whoever else's they are may change them; ours were checked as they came.
        told["files"] = {file.name: file.sha256 for file in bill.files}
    return told

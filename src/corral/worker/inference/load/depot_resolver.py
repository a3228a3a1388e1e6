"""Finds models for inference: those of the catalogue that are here, then plain folders.

What an administrator said of a model in the catalogue comes from the node's notes,
which lie apart from the model's own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from corral.core.tasks.job_type import NAME
from corral.worker.depot.manifest import Note
from corral.worker.depot.model_folder import Depot
from corral.worker.inference.load.resolve import FolderResolver, ModelRef


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


def definition(note: Note) -> dict[str, Any]:
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

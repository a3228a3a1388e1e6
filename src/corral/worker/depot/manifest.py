"""What a node is told of a model, and what it notes of one that it has."""

from __future__ import annotations

from pathlib import Path

import msgspec

from corral.core.tree import fault_of
from corral.errors import CorralError
from corral.wire.models import ModelManifest


class Unfetched(CorralError):
    """The files of a model cannot be had; the message says why."""

    code = "model_unavailable"


class CorruptModel(CorralError):
    """A file is not what the catalogue says it is."""

    code = "corrupt_model"


class ModelNote(msgspec.Struct, omit_defaults=True):
    """A model that is here; `is_ours` when we fetched it, and may remove it."""

    bill: ModelManifest
    folder: str
    is_ours: bool = True

    def is_of(self, bill: ModelManifest) -> bool:
        """Is it what the catalogue has now?"""
        return self.bill.edition == bill.edition

    def has_files_of(self, bill: ModelManifest) -> bool:
        return self.bill.mark == bill.mark

    def is_whole(self) -> bool:
        """Are all files there, as large as they should be?"""
        place = Path(self.folder)
        return all(has_size(place / f.name, f.size) for f in self.bill.files)


def has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def read_bill(data: bytes) -> ModelManifest:
    """Raises Unfetched for one that cannot be used, or whose names lead elsewhere."""
    try:
        bill = msgspec.json.decode(data, type=ModelManifest)
    except msgspec.MsgspecError as error:
        raise Unfetched(f"the manager's word on a model is unknown: {error}") from None
    for file in bill.files:
        if fault_of(file.name) or "\\" in file.name or ":" in file.name:
            raise Unfetched(f"{file.name!r} has a name this node does not keep")
    return bill


def without_urls(bill: ModelManifest) -> ModelManifest:
    """As it is noted: addresses are good for hours, and may be secret."""
    change = msgspec.structs.replace
    files = [change(file, url=None, peers=[]) for file in bill.files]
    return msgspec.structs.replace(bill, files=files)

"""A model's files before anything loads them: how large they are, and whether whole."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from corral.worker.inference.errors import Unusable

MB = 1024 * 1024
_HEADER_LIMIT = 100 * MB
_PIECE = 4 * MB
# Floating-point types are loaded in the type of the device, others as they are.
_FLOATS = {"F64", "F32", "F16", "BF16"}
_WIDTH = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U64": 8, "I32": 4, "U32": 4,
    "I16": 2, "U16": 2,
}  # fmt: skip

_verified: dict[tuple[str, int, int], str] = {}


def weight_files(folder: Path) -> list[Path]:
    """The files that hold weights: of several formats the one that would be loaded."""
    for pattern in ("*.safetensors", "*.onnx", "*.bin"):
        found = sorted(p for p in folder.rglob(pattern) if p.is_file())
        # A variant lies beside the file it is a variant of.
        whole = [p for p in found if ".fp16." not in p.name] or found
        if whole:
            return whole
    return []


def size_mb(folder: Path, float_bytes: int) -> float | None:
    """What the weights take in memory, with so many bytes a number."""
    files = weight_files(folder)
    if not files:
        return None
    return sum(_bytes_of(file, float_bytes) for file in files) / MB


def _bytes_of(file: Path, float_bytes: int) -> int:
    if file.suffix != ".safetensors":
        return file.stat().st_size
    return sum(
        math.prod(tensor["shape"])
        * (
            float_bytes
            if tensor["dtype"] in _FLOATS
            else _WIDTH.get(tensor["dtype"], 1)
        )
        for tensor in read_header(file).values()
    )


def read_header(file: Path) -> dict[str, Any]:
    """The tensors of a safetensors file by name.

    Raises:
        Unusable: the file is not whole.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or not 2 <= length <= min(size - 8, _HEADER_LIMIT):
            raise _corrupt(file, "its header is broken")
        try:
            header = json.loads(stream.read(length))
            tensors = {k: v for k, v in header.items() if k != "__metadata__"}
            ends = max((v["data_offsets"][1] for v in tensors.values()), default=0)
        except (ValueError, AttributeError, KeyError, TypeError, IndexError):
            raise _corrupt(file, "its header is broken") from None
    if size != 8 + length + ends:
        raise _corrupt(file, f"it has {size} bytes instead of {8 + length + ends}")
    return tensors


def verify(folder: Path, hashes: Mapping[str, str]) -> None:
    """Every file is whole, and has the SHA-256 that the model's definition names.

    Raises:
        Unusable: which file is not, and the hash it should have.
    """
    for file in weight_files(folder):
        if file.suffix == ".safetensors":
            read_header(file)
    for name, wanted in hashes.items():
        file = folder / name
        if not file.is_file():
            raise Unusable(f"{name} is missing in {folder.name}", "corrupt_model")
        found = _hash(file)
        if found != wanted.lower():
            raise _corrupt(file, f"its SHA-256 is {found} instead of {wanted}")


def _hash(file: Path) -> str:
    """Read once for as long as the file stays as it is."""
    told = file.stat()
    key = (str(file), told.st_size, told.st_mtime_ns)
    if key not in _verified:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
        _verified[key] = digest.hexdigest()
    return _verified[key]


def _corrupt(file: Path, why: str) -> Unusable:
    return Unusable(
        f"{file.parent.name}/{file.name} is corrupt: {why}; fetch it again",
        "corrupt_model",
    )


def read_json(file: Path) -> dict[str, Any]:
    """A configuration file; empty where there is none.

    Raises:
        Unusable: it is not JSON.
    """
    if not file.is_file():
        return {}
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        raise _corrupt(file, "it is not JSON") from None
    return told if isinstance(told, dict) else {}


def any_file(folder: Path, names: Iterable[str]) -> bool:
    return any((folder / name).is_file() for name in names)

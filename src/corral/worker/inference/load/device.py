"""What a worker computes on, by what is there, and in which precision.

ROCm shows itself as CUDA to torch; the two differ in name alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corral.worker.inference.errors import RequestRefused
from corral.worker.runner.gpu_memory import CARDS

MB = 1024 * 1024
KINDS = ("cuda", "rocm", "directml", "mps", "cpu")
DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Device:
    """One device, as torch names it; `kind` is one of KINDS."""

    kind: str
    name: str
    index: int = 0

    @property
    def is_cuda(self) -> bool:
        """Does it answer to torch.cuda?"""
        return self.kind in ("cuda", "rocm")


CPU = Device("cpu", "cpu")


def find_devices(
    wanted: str = "auto", allowed: Sequence[str] | None = None
) -> list[Device]:
    """The devices to use, of one kind: the best that is there, or the one wanted.

    Args:
        wanted: A kind, or auto.
        allowed: GPUs by number or id, where the worker was given none of its own; an
            empty list means none.

    Raises:
        Refused: the kind that is wanted is unknown or not there.
    """
    if wanted not in ("auto", *KINDS):
        raise RequestRefused(
            f"device {wanted!r} is unknown; known: auto, {', '.join(KINDS)}"
        )
    if importlib.util.find_spec("torch") is None:
        found = [CPU]
    else:
        found = _cuda(allowed) or _directml() or _mps() or [CPU]
        if wanted == "cpu" or (allowed is not None and not allowed):
            found = [CPU]
    if wanted not in ("auto", found[0].kind):
        raise RequestRefused(f"device {wanted} is not there; found: {found[0].kind}")
    return found


def _cuda(allowed: Sequence[str] | None) -> list[Device]:
    import torch

    if not torch.cuda.is_available():
        return []
    kind = "rocm" if getattr(torch.version, "hip", None) else "cuda"
    numbers = list(range(torch.cuda.device_count()))
    # Who was given cards sees no others.
    if allowed is not None and CARDS not in os.environ:
        numbers = [i for i in numbers if _is_named(i, allowed)]
    return [Device(kind, f"cuda:{i}", i) for i in numbers]


def _is_named(index: int, allowed: Sequence[str]) -> bool:
    import torch

    uuid = str(getattr(torch.cuda.get_device_properties(index), "uuid", ""))
    names = {name.removeprefix("GPU-").lower() for name in allowed}
    return str(index) in names or any(uuid and uuid.startswith(n) for n in names)


def _directml() -> list[Device]:
    if importlib.util.find_spec("torch_directml") is None:
        return []
    # By name: it exists for Windows alone, beside a torch of its own version.
    library: Any = importlib.import_module("torch_directml")
    count = library.device_count()
    return [Device("directml", str(library.device(i)), i) for i in range(count)]


def _mps() -> list[Device]:
    import torch

    is_there = torch.backends.mps.is_available()
    return [Device("mps", "mps")] if is_there else []


def choose_dtype(device: Device, wanted: str | None = None) -> str:
    """The precision of weights: half where the device computes in it, else full.

    Raises:
        Refused: the one wanted is unknown.
    """
    if wanted is not None and wanted != "auto":
        if wanted not in DTYPES:
            raise RequestRefused(
                f"dtype {wanted!r} is unknown; known: {', '.join(DTYPES)}"
            )
        return wanted
    if device.is_cuda:
        import torch

        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    return "float32" if device.kind == "cpu" else "float16"

"""The models a worker has in memory: loaded where there is room, freed and checked."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import psutil

from corral.worker.base import Failure
from corral.worker.inference.call import Loaded
from corral.worker.inference.errors import Unusable
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load import weights
from corral.worker.inference.load.batch_memory import BatchMemory
from corral.worker.inference.load.device import DTYPES, choose_dtype, find_devices
from corral.worker.inference.load.device_map import DevicePlan, FreeMemory, make_plan
from corral.worker.inference.load.memory import MemoryMeter, ModelMemoryUse
from corral.worker.inference.load.resolve import ModelRef, Resolver


class Backend(Protocol):
    """Loads models of one kind with one library."""

    def __call__(self, ref: ModelRef, plan: Any) -> Loaded:
        """Load it where the plan says.

        Raises:
            Unusable: its files are broken, or not for this library.
        """


_HOME = "corral.worker.inference."
# By kind: the module, what of it loads a model, and the libraries it needs.
_BACKENDS = {
    ModelKind.GENERATE: ("text.generate", "TextModel", ("torch", "transformers")),
    ModelKind.EMBED: ("text.embed", "VectorModel", ("torch", "transformers")),
    ModelKind.CLASSIFY: ("text.embed", "LabelModel", ("torch", "transformers")),
    ModelKind.CAPTION: (
        "media.caption",
        "CaptionModel",
        ("torch", "transformers", "PIL"),
    ),
    ModelKind.SPEAK: ("media.speech", "load_speech", ("torch", "transformers")),
    ModelKind.DRAW: ("media.image", "ImageModel", ("torch", "diffusers", "PIL")),
}
_GRAPHS = ("text.onnx_model", "GraphModel", ("onnxruntime", "tokenizers"))
_MACHINE_SHARE = 0.8
# Beyond this share of a model, memory that does not come back is worth a word.
_LEFT = 0.02


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Where models may be loaded, and how much they may take."""

    device: str = "auto"
    allowed: Sequence[str] | None = None
    dtype: str | None = None
    fraction: float = 0.9
    memory_mb: float | None = None
    """For all models together."""
    offload_dir: str | None = None


class LoadedModels:
    """Loads, counts and drops.

    `is_busy`: is something computed beside? What memory is taken then tells nothing.
    """

    def __init__(
        self,
        resolver: Resolver,
        limits: LoadLimits,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._resolver = resolver
        self._devices = find_devices(limits.device, limits.allowed)
        self._dtype = choose_dtype(self._devices[0], limits.dtype)
        self._limits = limits
        self._meter = MemoryMeter(self._devices)
        self._meter.cap(limits.fraction)
        self._is_busy = is_busy
        self._held: dict[str, Loaded] = {}
        self._plans: dict[str, DevicePlan] = {}
        self._uses: dict[str, ModelMemoryUse] = {}

    def prepare(self) -> None:
        """Import what the models here need, which is no part of what a load takes."""
        for name in self._resolver.names():
            # A model that is broken is told of when it is asked for.
            with contextlib.suppress(Failure, OSError):
                _backend(self._resolver.resolve(name))

    def load(self, name: str) -> None:
        """Have it in memory.

        Raises:
            Unusable: it is unknown, broken, or nothing here can load it.
            OutOfMemory: there is no room for it.
        """
        if name in self._held:
            return
        ref = self._resolver.resolve(name)
        backend = _backend(ref)
        weights.verify(ref.folder, ref.files)
        plan = self._plan(ref)
        use = self._uses.setdefault(name, ModelMemoryUse())
        was_busy = self._is_busy()
        use.before_mb = self._meter.held_mb()
        try:
            loaded = backend(ref, plan)
        except Failure:
            # What was loaded of it until then is nobody's.
            self._meter.trim()
            raise
        use.after_mb = self._meter.held_mb()
        use.loads += 1
        is_sure = self._meter.reads_cards and not (was_busy or self._is_busy())
        took_mb = use.after_mb - use.before_mb if is_sure else 0.0
        # What was freed meanwhile, of somebody else's, is not to its credit.
        is_split = is_sure and plan.is_spread
        use.size_mb = took_mb if is_split else max(took_mb, loaded.weights_mb())
        self._held[name], self._plans[name] = loaded, plan

    def unload(self, name: str) -> None:
        """Free what it took, and look whether it is free."""
        loaded, use = self._held.pop(name, None), self._uses.get(name)
        self._plans.pop(name, None)
        if loaded is None or use is None:
            return
        before = self._meter.held_mb()
        loaded.unload()
        del loaded
        self._meter.trim()
        use.left_mb = max(self._meter.held_mb() - (before - use.size_mb), 0.0)
        is_sure = self._meter.reads_cards and not self._is_busy()
        if is_sure and use.left_mb > _LEFT * use.size_mb:
            sys.stderr.write(
                f"model {name} was unloaded, but {use.left_mb:.1f} of its "
                f"{use.size_mb:.1f} MB did not come back\n"
            )

    def has(self, name: str) -> bool:
        return name in self._held

    def loaded(self, name: str) -> Loaded:
        if name not in self._held:
            raise Unusable(f"model {name} is not in memory", "unknown_model")
        return self._held[name]

    def use(self, name: str) -> ModelMemoryUse:
        """What was measured of a model so far."""
        return self._uses.get(name) or ModelMemoryUse()

    def sizes(self) -> dict[str, float]:
        """What models will take, by their files; those measured, as measured."""
        found = {}
        for name in self._resolver.names():
            use = self._uses.get(name)
            size = use.size_mb if use and use.loads else self._expected_mb(name)
            if size is not None:
                found[name] = size
        return found

    def gauge(self, name: str) -> BatchMemory:
        """Looks at what batches of a model take, and at what is left for them."""
        use = self._uses.setdefault(name, ModelMemoryUse())
        return BatchMemory(use.peaks, partial(self._free_mb, name), self._meter.watch)

    def facts(self, name: str) -> dict[str, Any]:
        """Where a model is and in which precision, and what its batches take."""
        if name not in self._held:
            return {}
        loaded, plan = self._held[name], self._plans[name]
        found = {"device": plan.device.kind, "peaks": self.use(name).peaks.told()}
        # What is no model of torch cannot tell.
        tell = getattr(loaded, "facts", None)
        return found | (tell() if callable(tell) else {})

    def trim(self) -> None:
        self._meter.trim()

    def describe(self) -> dict[str, Any]:
        """Where this worker computes and what its models take, for people to read."""
        return {
            "device": self._devices[0].kind,
            "devices": [device.name for device in self._devices],
            "dtype": self._dtype,
            "memory_used_mb": round(self._meter.used_mb(), 1),
            "models": {
                name: {
                    "memory_mb": round(self._uses[name].size_mb, 2),
                    "peak_mb": round(self._uses[name].peak_mb, 2),
                    **self.facts(name),
                }
                for name in list(self._held)
            },
            "time": time.time(),
        }

    def _plan(self, ref: ModelRef) -> DevicePlan:
        dtype = ref.dtype or self._dtype
        dtype = choose_dtype(self._devices[0], dtype)
        need_mb = weights.size_mb(ref.folder, DTYPES[dtype])
        room = self._room()
        if ref.is_graph or ref.kind in (ModelKind.DRAW, ModelKind.SPEAK):
            room = replace(room, may_spread=False, offload_dir=None)
        need_mb = ref.size_mb or need_mb or 0.0
        return make_plan(ref.name, need_mb, self._devices, dtype, room)

    def _room(self) -> FreeMemory:
        taken = sum(self._uses[name].size_mb for name in self._held)
        ours = (
            None if self._limits.memory_mb is None else self._limits.memory_mb - taken
        )
        if not self._meter.reads_cards:
            return FreeMemory(machine_mb=ours, offload_dir=self._limits.offload_dir)
        cards = self._meter.free_mb(self._limits.fraction)
        if ours is not None:
            cards = {card: min(free, ours) for card, free in cards.items()}
        return FreeMemory(cards, self._spare_mb(), offload_dir=self._limits.offload_dir)

    def _free_mb(self, name: str) -> float | None:
        """What a batch of this model may take now, on the device it is on."""
        if name not in self._plans:
            return None
        if not self._meter.reads_cards:
            return self._spare_mb()
        return self._meter.free_mb(self._limits.fraction).get(
            self._plans[name].device.index
        )

    def _spare_mb(self) -> float:
        return psutil.virtual_memory().available / weights.MB * _MACHINE_SHARE

    def _expected_mb(self, name: str) -> float | None:
        """A model that is broken is told of when it is asked for."""
        try:
            ref = self._resolver.resolve(name)
            dtype = choose_dtype(self._devices[0], ref.dtype or self._dtype)
            return ref.size_mb or weights.size_mb(ref.folder, DTYPES[dtype])
        except (Failure, OSError):
            return None


def _backend(ref: ModelRef) -> Backend:
    module, name, needed = _GRAPHS if ref.is_graph else _BACKENDS[ref.kind]
    missing = [lib for lib in needed if importlib.util.find_spec(lib) is None]
    if missing:
        text = (
            f"model {ref.name} needs {', '.join(missing)}, which this worker's Python "
            "does not have: pip install 'corral[inference]'"
        )
        raise Unusable(text, "missing_library")
    try:
        backend: Backend = getattr(importlib.import_module(_HOME + module), name)
    except ImportError as error:
        text = f"model {ref.name} needs a library that does not import: {error}"
        raise Unusable(text, "missing_library") from None
    return backend

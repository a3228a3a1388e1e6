"""The models a worker has in memory: loaded where there is room, freed and checked."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import psutil

from corral.worker.base import Failure
from corral.worker.inference import weights
from corral.worker.inference.call import Backend, Loaded
from corral.worker.inference.device import DTYPES, choose_dtype, find_devices
from corral.worker.inference.fault import Unusable
from corral.worker.inference.kind import Kind
from corral.worker.inference.memory import Meter, Use
from corral.worker.inference.place import ModelRef, Resolver
from corral.worker.inference.plan import Plan, Room, make_plan

_HOME = "corral.worker.inference."
# By kind: the module, what of it loads a model, and the libraries it needs.
_BACKENDS = {
    Kind.GENERATE: ("text", "TextModel", ("torch", "transformers")),
    Kind.EMBED: ("vector", "VectorModel", ("torch", "transformers")),
    Kind.CLASSIFY: ("vector", "LabelModel", ("torch", "transformers")),
    Kind.CAPTION: ("caption", "CaptionModel", ("torch", "transformers", "PIL")),
    Kind.SPEAK: ("speech", "load_speech", ("torch", "transformers")),
    Kind.DRAW: ("image", "ImageModel", ("torch", "diffusers", "PIL")),
}
_GRAPHS = ("graph", "GraphModel", ("onnxruntime", "tokenizers"))
_MACHINE_SHARE = 0.8
# Beyond this share of a model, memory that does not come back is worth a word.
_LEFT = 0.02


class Stock:
    """Loads, counts and drops. `memory_mb` is for all models together."""

    def __init__(
        self,
        resolver: Resolver,
        *,
        device: str = "auto",
        allowed: Sequence[str] | None = None,
        dtype: str | None = None,
        fraction: float = 0.9,
        memory_mb: float | None = None,
        offload_dir: str | None = None,
    ) -> None:
        self._resolver = resolver
        self._devices = find_devices(device, allowed)
        self._dtype = choose_dtype(self._devices[0], dtype)
        self._fraction = fraction
        self._memory_mb = memory_mb
        self._offload_dir = offload_dir
        self._meter = Meter(self._devices)
        self._meter.cap(fraction)
        self._held: dict[str, Loaded] = {}
        self._uses: dict[str, Use] = {}

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
        use = self._uses.setdefault(name, Use())
        use.before_mb = self._meter.held_mb()
        try:
            loaded = backend(ref, plan)
        except Failure:
            # What was loaded of it until then is nobody's.
            self._meter.trim()
            raise
        use.after_mb = self._meter.held_mb()
        use.loads += 1
        took = use.after_mb - use.before_mb
        use.size_mb = took if self._meter.reads_cards else loaded.weights_mb()
        self._held[name] = loaded

    def unload(self, name: str) -> None:
        """Free what it took, and look whether it is free."""
        loaded, use = self._held.pop(name, None), self._uses.get(name)
        if loaded is None or use is None:
            return
        before = self._meter.held_mb()
        loaded.unload()
        del loaded
        self._meter.trim()
        use.left_mb = max(self._meter.held_mb() - (before - use.size_mb), 0.0)
        if self._meter.reads_cards and use.left_mb > _LEFT * use.size_mb:
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

    def use(self, name: str) -> Use:
        """What was measured of a model so far."""
        return self._uses.get(name) or Use()

    def sizes(self) -> dict[str, float]:
        """What models will take, by their files; those measured, as measured."""
        found = {}
        for name in self._resolver.names():
            use = self._uses.get(name)
            size = use.size_mb if use and use.loads else self._expected_mb(name)
            if size is not None:
                found[name] = size
        return found

    def watch(self, name: str) -> AbstractContextManager[None]:
        return self._meter.watch(self._uses.setdefault(name, Use()))

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
                }
                for name in self._held
            },
            "time": time.time(),
        }

    def _plan(self, ref: ModelRef) -> Plan:
        dtype = ref.dtype or self._dtype
        dtype = choose_dtype(self._devices[0], dtype)
        need_mb = weights.size_mb(ref.folder, DTYPES[dtype])
        room = self._room()
        if ref.is_graph or ref.kind in (Kind.DRAW, Kind.SPEAK):
            room = replace(room, may_spread=False, offload_dir=None)
        need_mb = ref.size_mb or need_mb or 0.0
        return make_plan(ref.name, need_mb, self._devices, dtype, room)

    def _room(self) -> Room:
        taken = sum(self._uses[name].size_mb for name in self._held)
        ours = None if self._memory_mb is None else self._memory_mb - taken
        if not self._meter.reads_cards:
            return Room(machine_mb=ours, offload_dir=self._offload_dir)
        cards = self._meter.free_mb(self._fraction)
        if ours is not None:
            cards = {card: min(free, ours) for card, free in cards.items()}
        spare = psutil.virtual_memory().available / weights.MB * _MACHINE_SHARE
        return Room(cards, spare, offload_dir=self._offload_dir)

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

"""A worker whose models are texts: loading one reads its files, as inference does."""

from __future__ import annotations

from typing import Any

from corral import Worker
from corral.settings import load
from corral.worker.inference.load.resolve import DepotResolver


class Reader(Worker):
    """Answers with the text of the model that a task wants, and where it lies."""

    def start(self) -> None:
        self._resolver = DepotResolver(load().model_cache_dir, {})
        self._texts: dict[str, dict[str, Any]] = {}

    def load_model(self, name: str) -> None:
        ref = self._resolver.resolve(name)
        text = (ref.folder / "model.safetensors").read_text()
        told = {"text": text, "folder": str(ref.folder), "kind": str(ref.kind)}
        self._texts[name] = {**told, "trusts": ref.trust_remote_code}

    def unload_model(self, name: str) -> None:
        del self._texts[name]

    def model_memory_mb(self, name: str) -> float:
        return 10.0

    def run(self, payload: Any) -> Any:
        return self._texts[str(self.context.model)]

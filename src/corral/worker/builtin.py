"""Workers that come with Corral: an echo, and a sleeper for trying out faults."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from corral.worker.base import Worker
from corral.worker.runner.gpu_memory import GpuMemory


class EchoWorker(Worker):
    """Answers `{"message": m, "delay": s}` with `{"echoed": m}` after the delay."""

    def _run(self, payload: Any) -> dict[str, Any]:
        if not isinstance(payload, dict) or "message" not in payload:
            raise ValueError('echo needs a payload like {"message": "hello"}')
        if delay := payload.get("delay"):
            time.sleep(delay)
        return {"status": "completed", "output": {"echoed": payload["message"]}}


class SleepWorker(Worker):
    """Sleeps `{"seconds": s}`, then does what the payload asks.

    `{"exit": code}` ends the runner process, `{"fail": message}` raises,
    `{"hang": true}` never returns. `{"memory_mb": m}` takes so much of a simulated card
    while it sleeps.

    Made with `{"models": {"m1": {"size_mb": 4000, "load_s": 2}}}` it takes so long to
    load a model, which then takes so much of a simulated card.
    """

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._memory, self._took_mb = GpuMemory(), 0.0
        self._models = {
            str(name): {key: float(value) for key, value in told.items()}
            for name, told in dict(params.get("models") or {}).items()
        }

    def working_memory_mb(self) -> float | None:
        """What the last task took beside its model, as its payload said."""
        return self._took_mb or None

    def load_model(self, name: str) -> None:
        time.sleep(self._models.get(name, {}).get("load_s", 0.0))

    def model_memory_mb(self, name: str) -> float | None:
        return self._models.get(name, {}).get("size_mb")

    def model_sizes(self) -> dict[str, float]:
        known = self._models.items()
        return {name: told["size_mb"] for name, told in known if "size_mb" in told}

    def run(self, payload: Any) -> dict[str, Any]:
        if not isinstance(payload, dict):
            raise ValueError('sleep needs a payload like {"seconds": 0.1}')
        seconds = float(payload.get("seconds", 0.0))
        self._took_mb = float(payload.get("memory_mb") or 0.0)
        self._memory.take("", self._took_mb)
        try:
            time.sleep(seconds)
        finally:
            self._memory.give_back("")
        if "exit" in payload:
            os._exit(int(payload["exit"]))
        if "fail" in payload:
            raise RuntimeError(str(payload["fail"]))
        if payload.get("hang"):
            threading.Event().wait()
        return {"slept": seconds}

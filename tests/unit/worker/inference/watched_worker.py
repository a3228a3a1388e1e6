"""The worker itself, and when the libraries of models came into its process."""

from __future__ import annotations

import sys
from typing import Any

from corral.worker.inference import InferenceWorker


class Watched(InferenceWorker):
    def __init__(self, **params: Any) -> None:
        imported = "torch" in sys.modules
        super().__init__(**params)
        self._seen = {"imported": imported, "made": "torch" in sys.modules}

    def start(self) -> None:
        super().start()
        self._seen["started"] = "transformers" in sys.modules

    def run(self, payload: Any) -> Any:
        return self._seen if payload == "libraries" else super().run(payload)

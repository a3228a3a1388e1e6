"""A worker with something to look at: models, progress, logs, pieces of output."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from corral import Worker

SIZES = {"sketch": 4_000.0, "oil": 14_000.0, "fresco": 22_000.0}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Paint a picture",
    "required": ["prompt"],
    "additionalProperties": False,
    "properties": {
        "prompt": {"type": "string", "minLength": 1, "description": "what is on it"},
        "steps": {"type": "integer", "minimum": 1, "maximum": 400, "default": 4},
        "style": {"enum": ["plain", "baroque", "cubist"], "default": "plain"},
        "guidance": {"type": "number", "minimum": 0, "maximum": 30, "default": 7.5},
        "framed": {"type": "boolean", "default": False},
        "size": {
            "type": "object",
            "properties": {
                "width": {"type": "integer", "minimum": 8, "default": 512},
                "height": {"type": "integer", "minimum": 8, "default": 512},
            },
        },
        "colours": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
        "pause_s": {"type": "number", "minimum": 0, "default": 0.05},
        "until": {"type": "string", "description": "done once this file is there"},
        "fail": {"type": "string", "description": "break with this message"},
    },
}


class Painter(Worker):
    """Paints `steps` strokes, and tells of each in every way there is."""

    def load_model(self, name: str) -> None:
        time.sleep(0.1 if name == "sketch" else 0.4)

    def model_sizes(self) -> dict[str, float]:
        return SIZES

    def model_memory_mb(self, name: str) -> float | None:
        return SIZES.get(name)

    def run(self, payload: dict[str, Any]) -> dict[str, Any]:
        steps = int(payload.get("steps", 4))
        self.context.log(f"painting {payload.get('prompt')!r} in {steps} strokes")
        for step in range(1, steps + 1):
            if self.context.cancelled:
                raise RuntimeError("stopped with a wet brush")
            time.sleep(float(payload.get("pause_s", 0.05)))
            self.context.log(f"stroke {step} of {steps}: loss {1 / (step + 1):.4f}")
            self.context.emit(f"stroke {step} ")
            self.context.progress(step / steps, f"stroke {step} of {steps}")
            if "until" in payload and Path(payload["until"]).exists():
                break
        if "fail" in payload:
            raise ValueError(payload["fail"])
        return {"picture": "a picture of " + str(payload.get("prompt")), "steps": steps}

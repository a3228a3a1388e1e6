"""Answers a canary in the runner: the whole way works, and the class says so itself."""

from __future__ import annotations

import os
import time
from typing import Any

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CORRAL_GPUS")


def answer(worker: Any, payload: Any) -> dict[str, Any]:
    """What the worker's process is; raises what the class's own `canary` raises."""
    begin = time.perf_counter()
    check = getattr(worker, "canary", None)
    said = check() if callable(check) else None
    kind = type(worker)
    return {
        "nonce": payload.get("nonce") if isinstance(payload, dict) else None,
        "worker_class": f"{kind.__module__}:{kind.__qualname__}",
        "pid": os.getpid(),
        "gpus": {name: os.environ[name] for name in _VISIBLE if os.environ.get(name)},
        "seconds": round(time.perf_counter() - begin, 6),
        "canary": said,
    }

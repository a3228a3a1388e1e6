"""Worker classes a user might write, for the acceptance tests."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from corral import Client
from corral.worker import Worker


class JoinWorker(Worker):
    """Returns the outputs of the tasks it depends on."""

    def run(self, payload: Any) -> Any:
        return self.context.inputs


class TalkWorker(Worker):
    """Prints what it is told."""

    def run(self, payload: Any) -> Any:
        print(payload["say"])  # noqa: T201
        return len(payload["say"])


class ModelWorker(Worker):
    """Multiplies by what its model says, and counts how often it loaded one."""

    def start(self) -> None:
        self.factors: dict[str, int] = {}
        self.loads = 0

    def load_model(self, name: str) -> None:
        self.factors[name] = {"double": 2}[name]
        self.loads += 1

    def run(self, payload: Any) -> Any:
        model = self.context.model or ""
        y = payload["x"] * self.factors[model]
        return {"y": y, "model": model, "loads": self.loads}


class GatherWorker(Worker):
    """Takes many at once, and as long for all of them as for one."""

    def run_batch(self, payloads: list[Any]) -> list[Any]:
        threading.Event().wait(0.3)
        return [len(payloads)] * len(payloads)


class Greeter(Worker):
    """Says what it was made to say."""

    def run(self, payload: Any) -> Any:
        return {"said": f"{self.params['greeting']}, {payload['name']}"}


class CardWorker(Worker):
    """Says which cards it sees; its models take 4 GB, or wait for a file to appear."""

    def model_memory_mb(self, name: str) -> float:
        return 4096.0

    def run(self, payload: Any) -> Any:
        told = dict(payload)
        while told.get("until") and not Path(told["until"]).exists():
            threading.Event().wait(0.05)
        return {"cards": os.environ.get("CORRAL_GPUS"), "attempt": self.context.attempt}


class RequestWorker(Worker):
    """Says, in its log and as its result, which request its task came with.

    With `next`, where and by which key, it submits another like itself.
    """

    def run(self, payload: Any) -> Any:
        print("at work for", self.context.request_id)  # noqa: T201
        told = (self.context.request_id, self.context.traceparent)
        if "next" in payload:
            with Client(*payload["next"]) as client:
                return {"next": client.submit("request", {}).task_id}
        return dict(zip(("request_id", "traceparent"), told, strict=True))

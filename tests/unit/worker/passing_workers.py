"""Worker classes whose tasks submit tasks of their own."""

from __future__ import annotations

import threading
from typing import Any

from corral import Client
from corral.worker import Worker


def submit(payload: Any) -> None:
    with Client(payload["url"], "corral_k_s") as client:
        client.submit("next", {})


class PassesOn(Worker):
    """From its own thread, or from one that it starts."""

    def run(self, payload: Any) -> Any:
        if not payload.get("thread"):
            return submit(payload)
        thread = threading.Thread(target=submit, args=(payload,))
        thread.start()
        return thread.join()


class PassesOnInLanes(PassesOn):
    shares_runner = True


class PassesOnTogether(Worker):
    def run_batch(self, payloads: list[Any]) -> list[Any]:
        submit(payloads[0])
        return [len(payloads)] * len(payloads)

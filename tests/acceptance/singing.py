"""A worker that tells how it is when it is asked."""

from __future__ import annotations

from typing import Any

from corral import Worker


class SingingWorker(Worker):
    def run(self, payload: Any) -> Any:
        return payload

    def canary(self) -> str:
        return "tweet"


class HoarseWorker(SingingWorker):
    def canary(self) -> str:
        raise RuntimeError("it lost its voice")

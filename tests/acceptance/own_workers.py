"""Worker classes a user might write, for the acceptance tests."""

from __future__ import annotations

from typing import Any

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

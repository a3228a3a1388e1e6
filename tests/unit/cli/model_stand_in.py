"""A stand-in manager with one model that writes, for commands that have it do so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.unit.client.stand_in import Answer, Seen, StandIn, submitted, task_out

WORKER = {"worker_id": "w1", "status": "online", "job_types": ["generate"]}


class Writer:
    """Answers every task of type generate with the next of some texts."""

    def __init__(self, manager: StandIn, *texts: str) -> None:
        self.manager = manager
        self._texts = list(texts)
        manager.on("GET /workers", {"workers": [WORKER]})
        self.knows("story", "tale", "embedder")
        self.answer_again()

    def answer_again(self) -> None:
        self.manager.on("POST /tasks", self._submit)

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """What was submitted."""
        return [seen.json for seen in self.manager.asked("POST /tasks")]

    @property
    def payloads(self) -> list[dict[str, Any]]:
        return [task["parameters"] for task in self.tasks]

    def knows(self, *names: str) -> None:
        self.manager.on("GET /v1/models", {"data": [{"id": name} for name in names]})

    def _submit(self, seen: Seen) -> Answer:
        text = self._texts.pop(0) if len(self._texts) > 1 else self._texts[0]
        self.write(seen.json["task_id"], text)
        return Answer(submitted(seen.json["task_id"]))

    def write(self, task_id: str, text: str) -> None:
        """From now on the task has written this, word by word."""
        words = text.split(" ")
        pieces = [f"{word} " for word in words[:-1]] + words[-1:]
        self.emit(task_id, pieces)
        said = {"text": text, "prompt_tokens": 3, "tokens": len(words)}
        self.end(task_id, task_out(task_id, result={**said, "finish_reason": "stop"}))

    def emit(self, task_id: str, pieces: Sequence[Any], done: bool = True) -> None:
        rows = [
            {"attempt": 1, "number": n, "value": {"text": text}}
            for n, text in enumerate(pieces, 1)
        ]
        page = {"pieces": rows, "cursor": "1:9", "done": done}
        self.manager.on(f"GET /tasks/{task_id}/output", page)

    def end(self, task_id: str, task: dict[str, Any]) -> None:
        self.manager.on(f"GET /tasks/{task_id}", task)

"""From what tasks answer to what clients of the OpenAI-compatible face expect."""

from __future__ import annotations

import array
import base64
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from corral.api.openai import shapes
from corral.core.tasks.task import State, Task
from corral.errors import CorralError, InvalidField, NotFound, TaskFailed
from corral.manager.output.stream import OutputPage

_TURNED_DOWN = frozenset({"bad_input", "unsupported_type", "bad_payload"})
_NO_MODEL = frozenset({"unknown_model", "model_not_found"})
_REASONS = frozenset({"stop", "length"})


class GeneratedText(msgspec.Struct):
    """What a worker that generates text answers."""

    text: str = ""
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    tokens: int = 0

    @property
    def reason(self) -> str:
        return self.finish_reason if self.finish_reason in _REASONS else "stop"


class Vectors(msgspec.Struct):
    """What a worker that embeds texts answers."""

    embeddings: list[list[float]]
    tokens: int = 0

    def check(self, dimensions: int | None) -> None:
        """Raises InvalidField when vectors of another length were asked for."""
        has = len(self.embeddings[0]) if self.embeddings else 0
        if dimensions not in (None, has):
            raise InvalidField(
                f"this model makes vectors of {has} numbers; leave dimensions out",
                field="dimensions",
            )


class Transcript:
    """Text as it is passed on: each letter once, though an attempt may begin again."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._at = self._told = 0

    def take(self, page: OutputPage) -> str:
        """The text that is new."""
        if page.cut is not None:
            del self._pieces[page.cut :]
            self._at = sum(map(len, self._pieces))
        self._pieces += [""] * page.skipped
        return "".join(self._add(text_of(value)) for value in page.values)

    def rest(self, whole: str) -> str:
        """What of the whole text has not been passed on."""
        return whole[self._told :]

    def _add(self, piece: str) -> str:
        fresh = piece[max(self._told - self._at, 0) :]
        self._pieces.append(piece)
        self._at += len(piece)
        self._told = max(self._told, self._at)
        return fresh


def text_of(value: bytes) -> str:
    """The text in a piece of output: itself, or what it has under `text`."""
    told: Any = msgspec.json.decode(value)
    if isinstance(told, dict):
        told = told.get("text")
    return told if isinstance(told, str) else ""


def said_by(task: Task) -> GeneratedText:
    """What a task has answered.

    Raises:
        InvalidField, NotFound, TaskFailed: it has not completed.
    """
    check(task)
    raw = (task.result or "null").encode()
    try:
        return msgspec.json.decode(raw, type=GeneratedText)
    except msgspec.ValidationError:
        return GeneratedText(text_of(raw))


def vectors_of(task: Task) -> Vectors:
    check(task)
    try:
        return msgspec.json.decode(task.result or "null", type=Vectors)
    except msgspec.ValidationError as error:
        text = f"the worker's answer has no embeddings: {error}"
        raise TaskFailed(text, kind="bad_result") from error


def check(task: Task) -> None:
    """Raises what stands for the failure of a task."""
    if task.state is not State.COMPLETED:
        raise failure(task)


def failure(task: Task) -> CorralError:
    kind = task.error.kind if task.error else str(task.state)
    message = task.error.message if task.error else f"the request ended as {task.state}"
    if kind in _TURNED_DOWN:
        return InvalidField(message)
    if kind in _NO_MODEL:
        return NotFound(message, field="model")
    return TaskFailed(message, kind=kind)


def usage(answers: Sequence[GeneratedText]) -> shapes.Usage:
    asked = sum(said.prompt_tokens for said in answers)
    made = sum(said.tokens for said in answers)
    return shapes.Usage(asked, made, asked + made)


def chat(
    task_id: str, at: int, name: str, answers: Sequence[GeneratedText]
) -> shapes.ChatOut:
    choices = [
        shapes.ChatChoice(i, shapes.MessageOut(said.text), said.reason)
        for i, said in enumerate(answers)
    ]
    return shapes.ChatOut(f"chatcmpl-{task_id}", at, name, choices, usage(answers))


def completion(
    task_id: str, at: int, name: str, answers: Sequence[GeneratedText]
) -> shapes.CompletionOut:
    choices = [
        shapes.TextChoice(i, said.text, said.reason) for i, said in enumerate(answers)
    ]
    return shapes.CompletionOut(f"cmpl-{task_id}", at, name, choices, usage(answers))


def embeddings(name: str, found: Vectors, form: str) -> shapes.EmbeddingsOut:
    rows = [
        shapes.EmbeddingOut(i, _packed(vector) if form == "base64" else vector)
        for i, vector in enumerate(found.embeddings)
    ]
    spent = shapes.EmbeddingsUsage(found.tokens, found.tokens)
    return shapes.EmbeddingsOut(rows, name, spent)


def _packed(vector: Sequence[float]) -> str:
    numbers = array.array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()

"""Prints what a task emits, as it does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from corral.cli import show

if TYPE_CHECKING:
    from corral.client import Client, TaskDetail


def follow(client: Client, task_id: str) -> TaskDetail:
    """Print its output to the end; the ended task.

    Text stands as it is, also where it is the `text` of a piece; other pieces stand on
    lines of their own, as JSON.
    """
    last, is_at_start = 0, True
    for piece in client.stream(task_id):
        if piece.number <= last:
            show.hint("The attempt was lost; another begins from the start:")
        last = piece.number
        text = _text(piece.value)
        if text is None:
            sys.stdout.write("" if is_at_start else "\n")
            show.echo_json(piece.value, indent=None)
            is_at_start = True
            continue
        sys.stdout.write(text)
        sys.stdout.flush()
        is_at_start = text.endswith("\n") if text else is_at_start
    if not is_at_start:
        sys.stdout.write("\n")
    return client.wait(task_id)


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) else None

"""Options that several commands share, written once and taken as one value."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any


def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Any]:
    """Give a command all options of each group; it gets what the group makes of them.

    `@takes(task=task_options)` on `def run(ctx, *, task)` shows the parameters of
    `task_options` on the command line and calls `run` with its return value.
    """

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        own = _parameters(command, without=groups)
        parts = {name: _parameters(make) for name, make in groups.items()}
        shared = [p for part in parts.values() for p in part]

        @functools.wraps(command)
        def call(*args: Any, **given: Any) -> None:
            made = {
                name: groups[name](**{p.name: given.pop(p.name) for p in part})
                for name, part in parts.items()
            }
            command(*args, **given, **made)

        every = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY) if p in shared else p
            for p in (*own, *shared)
        ]
        every.sort(key=lambda p: p.kind)
        call.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in every} | {"return": None}
        # Typer would otherwise look through to the command itself.
        del call.__wrapped__
        return call

    return wrap


def _parameters(
    function: Callable[..., Any], without: Collection[str] = ()
) -> list[inspect.Parameter]:
    """Its parameters with real annotations, also where they are written as texts.

    One by one: the others may name what is imported for type checkers only.
    """
    found = inspect.signature(function).parameters.values()
    return [
        p.replace(annotation=_resolve(p.annotation, function))
        for p in found
        if p.name not in without
    ]


def _resolve(annotation: Any, function: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, function.__globals__)

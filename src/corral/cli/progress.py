"""Live progress on a terminal, silence anywhere else. Always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from corral.cli.fault import one_line

Advance: TypeAlias = Callable[[int, int], object]
Say: TypeAlias = Callable[[str], object]


def is_live() -> bool:
    return sys.stderr.isatty()


@contextmanager
def bar(label: str) -> Iterator[Advance]:
    """A bar; call what it gives with how many are done, of how many."""
    if not is_live():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        job = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(job, completed=done, total=total)


@contextmanager
def spinner(label: str) -> Iterator[Say]:
    """A spinner; call what it gives with what to say now."""
    if not is_live():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    terminal = Console(stderr=True, markup=False, highlight=False)
    with terminal.status(Text(label)) as status:
        yield lambda text: status.update(Text(one_line(text)))

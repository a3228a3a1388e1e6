"""A bar of what is done, on a terminal's stderr; silence anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Advance: TypeAlias = Callable[[int, int | None], object]
"""Called with how many are done, of how many; None while nobody knows."""


@contextmanager
def bar(
    label: str, *, is_shown: bool | None = None, is_bytes: bool = False
) -> Iterator[Advance]:
    """A bar; call what it gives with how many are done.

    Without `is_shown` it is seen when stderr is a terminal. With `is_bytes`, what is
    done are bytes, and shown as such.
    """
    if not (sys.stderr.isatty() if is_shown is None else is_shown):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True) if is_bytes else MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    shown = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        # What the caller prints into a file or pipe must still get there.
        redirect_stdout=sys.stdout.isatty(),
    )
    with shown as progress:
        job = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(job, completed=done, total=total)

"""Live progress on a terminal, silence anywhere else. Always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

from corral.cli.terminal.errors import one_line
from corral.client.progress import bar

__all__ = ["Say", "bar", "is_live", "share", "spinner"]

Say: TypeAlias = Callable[[str], object]
Share: TypeAlias = Callable[[float, str], object]


def is_live() -> bool:
    return sys.stderr.isatty()


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


@contextmanager
def share() -> Iterator[Share]:
    """A bar below what is printed, from the first time it is told how far it is."""
    if not is_live():
        yield lambda fraction, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    words = TextColumn("{task.description}", markup=False)
    shown = Progress(
        BarColumn(),
        TaskProgressColumn(),
        words,
        console=Console(stderr=True),
        transient=True,
        # What is printed into a file or pipe must still get there.
        redirect_stdout=sys.stdout.isatty(),
    )
    with ExitStack() as stack:

        def say(fraction: float, text: str) -> None:
            if not shown.tasks:
                stack.enter_context(shown)
                shown.add_task("", total=1.0)
            job = shown.tasks[0].id
            shown.update(job, completed=fraction, description=one_line(text))

        yield say

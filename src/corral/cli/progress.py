"""Live progress on a terminal, silence anywhere else. Always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from corral.cli.fault import one_line
from corral.client.bar import bar

__all__ = ["Say", "bar", "is_live", "spinner"]

Say: TypeAlias = Callable[[str], object]


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

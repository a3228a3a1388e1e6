"""A group whose commands are imported when used, not when listed.

Help and completion read a table; only the command that runs is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command by import path (`module:name`), with its line in the help."""

    target: str
    says: str
    section: str = "Commands"
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What the shell may complete to; the attributes are those Typer reads."""

    value: str
    help: str
    type: str = "plain"


@cache
def load_command(name: str, target: str) -> Any:
    """The command behind an import path: a function, or a Typer app as a group.

    Kept, for whoever runs several: Typer reads a function anew each time.
    """
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None
        command: Any = get_group(found)
        command.name = name
        return command
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(found)
    return get_command(alone)


class LazyGroup(TyperGroup):
    """Subclasses name their commands in `table`."""

    table: Mapping[str, CommandEntry] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.table.get(cmd_name)
        return load_command(cmd_name, entry.target) if entry else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Its search for a near miss looks at the commands' names only.
        self.commands = {
            name: self for name, entry in self.table.items() if not entry.is_hidden
        }
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.table.items():
            if not entry.is_hidden:
                sections.setdefault(entry.section, []).append((name, entry.says))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows, col_max=12)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        found: list[Any] = [
            Suggestion(name, entry.says)
            for name, entry in self.table.items()
            if name.startswith(incomplete) and not entry.is_hidden
        ]
        # Not the group's own completion: that one would load every command.
        return found + super(TyperGroup, self).shell_complete(ctx, incomplete)

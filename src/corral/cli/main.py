"""The entry of the `corral` command: global options and the table of commands.

Imports nothing that a command needs: `corral --help` must be quick.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from corral.cli.options.connect import ConnectOptions
from corral.cli.terminal import errors
from corral.errors import CorralError

# A group whose commands are imported when used, not when listed.


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


_CLUSTER, _WORK, _MORE = "The cluster", "Work", "More"


class Root(LazyGroup):
    """The `corral` command itself."""

    table = {
        "up": CommandEntry(
            "corral.cli.up.command:up", "Start a cluster on this machine.", _CLUSTER
        ),
        "down": CommandEntry("corral.cli.up.down:down", "Stop it.", _CLUSTER),
        "join": CommandEntry(
            "corral.cli.nodes.join:join",
            "Make this machine a node of a cluster.",
            _CLUSTER,
        ),
        "status": CommandEntry(
            "corral.cli.cluster.status:status", "How the cluster does.", _CLUSTER
        ),
        "top": CommandEntry("corral.cli.top.command:top", "The same, live.", _CLUSTER),
        "dashboard": CommandEntry(
            "corral.cli.cluster.dashboard:dashboard", "Open the web pages.", _CLUSTER
        ),
        "doctor": CommandEntry(
            "corral.cli.cluster.doctor:doctor", "Say what to fix.", _CLUSTER
        ),
        "validate": CommandEntry(
            "corral.cli.cluster.validate:validate", "Try every worker.", _CLUSTER
        ),
        "alerts": CommandEntry(
            "corral.cli.cluster.events:alerts_app", "What is wrong.", _CLUSTER
        ),
        "events": CommandEntry(
            "corral.cli.cluster.events:events", "What happened.", _CLUSTER
        ),
        "nodes": CommandEntry(
            "corral.cli.nodes.list:nodes", "List machines.", _CLUSTER
        ),
        "cordon": CommandEntry(
            "corral.cli.nodes.hold:cordon", "Give a node nothing new.", _CLUSTER
        ),
        "drain": CommandEntry("corral.cli.nodes.hold:drain", "Empty a node.", _CLUSTER),
        "uncordon": CommandEntry(
            "corral.cli.nodes.hold:uncordon", "Open it again.", _CLUSTER
        ),
        "label": CommandEntry(
            "corral.cli.nodes.hold:label", "Set labels of a node.", _CLUSTER
        ),
        "taint": CommandEntry(
            "corral.cli.nodes.hold:taint", "Keep tasks off a node.", _CLUSTER
        ),
        "window": CommandEntry(
            "corral.cli.nodes.hold:window_app", "Plan maintenance.", _CLUSTER
        ),
        "leave": CommandEntry(
            "corral.cli.nodes.leave:leave", "Be a node no more.", _CLUSTER
        ),
        "gpu": CommandEntry(
            "corral.cli.nodes.list:gpu_app", "List GPUs, lift a quarantine.", _CLUSTER
        ),
        "metrics": CommandEntry(
            "corral.cli.cluster.metrics:metrics",
            "Figures over time, as plots.",
            _CLUSTER,
        ),
        "workers": CommandEntry(
            "corral.cli.workers.manage:workers", "List workers.", _CLUSTER
        ),
        "worker": CommandEntry(
            "corral.cli.workers.manage:app",
            "Launch, restart or stop workers.",
            _CLUSTER,
        ),
        "breaker": CommandEntry(
            "corral.cli.nodes.list:breaker_app",
            "Workers that keep failing.",
            _CLUSTER,
        ),
        "models": CommandEntry(
            "corral.cli.models.memory:app",
            "Add, fetch, load, pin, list models.",
            _CLUSTER,
        ),
        "model": CommandEntry(
            "corral.cli.models.memory:app", "The same.", is_hidden=True
        ),
        "rebalance": CommandEntry(
            "corral.cli.models.memory:rebalance", "Spread models better.", _CLUSTER
        ),
        "run": CommandEntry(
            "corral.cli.tasks.run:run", "Run a task, print its result.", _WORK
        ),
        "generate": CommandEntry(
            "corral.cli.models.generate:generate", "Have a model write.", _WORK
        ),
        "chat": CommandEntry(
            "corral.cli.models.chat:chat", "Talk with a model.", _WORK
        ),
        "embed": CommandEntry(
            "corral.cli.models.generate:embed", "Texts as vectors.", _WORK
        ),
        "submit": CommandEntry(
            "corral.cli.tasks.submit:submit", "Submit one or many tasks.", _WORK
        ),
        "tasks": CommandEntry("corral.cli.tasks.list:tasks", "List tasks.", _WORK),
        "task": CommandEntry(
            "corral.cli.tasks.list:task", "Show all about one task.", _WORK
        ),
        "explain": CommandEntry(
            "corral.cli.tasks.explain:explain", "Say why a task waits.", _WORK
        ),
        "logs": CommandEntry(
            "corral.cli.tasks.logs:logs", "Show what a task printed.", _WORK
        ),
        "artifacts": CommandEntry(
            "corral.cli.tasks.logs:artifacts_app",
            "List and fetch files of tasks.",
            _WORK,
        ),
        "profile": CommandEntry(
            "corral.cli.tasks.profile:profile", "See what a task spends time on.", _WORK
        ),
        "wait": CommandEntry(
            "corral.cli.tasks.wait_cancel_requeue:wait",
            "Wait until tasks have ended.",
            _WORK,
        ),
        "exec": CommandEntry(
            "corral.cli.tasks.exec:run_beside", "Run a command beside a script.", _WORK
        ),
        "cancel": CommandEntry(
            "corral.cli.tasks.wait_cancel_requeue:cancel", "Stop tasks.", _WORK
        ),
        "requeue": CommandEntry(
            "corral.cli.tasks.wait_cancel_requeue:requeue",
            "Run ended tasks again.",
            _WORK,
        ),
        "dlq": CommandEntry(
            "corral.cli.tasks.dlq:app", "Tasks that failed for good.", _WORK
        ),
        "schedule": CommandEntry(
            "corral.cli.tasks.schedule:app", "Submit tasks by the clock.", _WORK
        ),
        "job": CommandEntry(
            "corral.cli.tasks.job:app", "Tasks, as the job API has them.", _WORK
        ),
        "job-type": CommandEntry(
            "corral.cli.admin.job_types:app", "Kinds of work.", _MORE
        ),
        "share": CommandEntry(
            "corral.cli.admin.shares:app", "Who may have how much.", _MORE
        ),
        "worker-type": CommandEntry(
            "corral.cli.workers.types:app", "Name classes to launch.", _MORE
        ),
        "scaling": CommandEntry(
            "corral.cli.workers.types:scaling", "Workers by demand.", _MORE
        ),
        "secret": CommandEntry(
            "corral.cli.admin.secrets:app", "Values for jobs, encrypted.", _MORE
        ),
        "route": CommandEntry(
            "corral.cli.admin.gateway:app", "Forward to HTTP services.", _MORE
        ),
        "ingress": CommandEntry(
            "corral.cli.serve.ingress:ingress",
            "Take tasks of plain Celery clients.",
            _MORE,
        ),
        "mcp": CommandEntry(
            "corral.cli.admin.mcp:mcp", "Tools for a coding agent.", _MORE
        ),
        "audit": CommandEntry(
            "corral.cli.admin.audit:audit", "Who asked for what.", _MORE
        ),
        "key": CommandEntry("corral.cli.admin.keys:key_app", "Keys for people.", _MORE),
        "token": CommandEntry(
            "corral.cli.admin.keys:token_app", "Make join tokens for nodes.", _MORE
        ),
        "record": CommandEntry(
            "corral.cli.cluster.simulate:record", "Write down what was decided.", _MORE
        ),
        "simulate": CommandEntry(
            "corral.cli.cluster.simulate:simulate",
            "What would be, in virtual time.",
            _MORE,
        ),
        "config": CommandEntry(
            "corral.cli.admin.config:config", "Show every setting.", _MORE
        ),
        "version": CommandEntry(
            "corral.cli.admin.config:version", "Show the version.", _MORE
        ),
        "manager": CommandEntry(
            "corral.cli.serve.manager:manager", "The manager process.", is_hidden=True
        ),
        "agent": CommandEntry(
            "corral.cli.serve.agent:agent", "The agent process.", is_hidden=True
        ),
    }

    def invoke(self, ctx: Any) -> Any:
        is_debug = bool(ctx.params.get("debug"))
        if is_debug:
            sys.excepthook = sys.__excepthook__
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (CorralError, OSError) as error:
            raise typer.Exit(errors.report(error, is_debug=is_debug)) from None


app = typer.Typer(
    name="corral",
    cls=Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from corral import __version__

        typer.echo(f"corral {__version__}")
        raise typer.Exit


@app.callback()
def corral(
    ctx: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The manager; else CORRAL_MANAGER_URL."),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The data folder; else CORRAL_HOME."),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", envvar="CORRAL_DEBUG", help="Show the traceback of an error."
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Run work on a cluster of GPU machines."""
    ctx.obj = ConnectOptions(url, home)


def main() -> None:
    sys.excepthook = errors.last_resort
    get_command(app)(prog_name="corral")

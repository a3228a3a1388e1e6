"""`corral up`: a whole cluster on this machine, from its data folder.

A small parent: it wires the children together and looks after them. It imports neither
the manager nor the agent; both are processes like PostgreSQL and Redis.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer

from corral.cli.options.connect import reach_of
from corral.cli.up.launched import end_with
from corral.cli.up.options import Options
from corral.cli.up.sequence import run_cluster
from corral.errors import CorralError
from corral.process.keep_alive import python_command

DETACHED_LOG = "up.log"
_DETACHED_START_S = 600.0


def up(
    ctx: typer.Context,
    home: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The data folder.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Listen here; else loopback.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Listen here; else 8002.")
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:CLASS[=TYPE][xN]",
            help="A worker to run here, N runners; repeatable. Else the standard one.",
        ),
    ] = None,
    no_agent: Annotated[
        bool, typer.Option("--no-agent", help="No worker on this machine.")
    ] = False,
    tls: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="CERT KEY", help="Serve HTTPS with these PEM files."),
    ] = None,
    allow_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext", help="Beyond loopback without TLS.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Ask nobody for a key; loopback only.")
    ] = False,
    celery_ingress: Annotated[
        bool,
        typer.Option("--celery-ingress", help="Take tasks of plain Celery clients."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it is ready.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="When stopped, let running tasks finish.")
    ] = False,
    log_format: Annotated[
        str | None, typer.Option(metavar="json|text", help="How the logs look.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the parts log.")
    ] = False,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Start PostgreSQL, Redis, a manager and an agent here, and keep them running."""
    end_with(parent)
    options = Options(
        home=home or reach_of(ctx).home,
        host=host,
        port=port,
        ssl_cert_path=tls[0].absolute() if tls else None,
        ssl_key_path=tls[1].absolute() if tls else None,
        allow_plaintext=allow_plaintext or None,
        insecure=insecure or None,
        celery_ingress=celery_ingress or None,
        log_format=log_format,
        workers=() if no_agent else checked(worker),
        drain=drain,
        verbose=verbose,
    )
    raise typer.Exit(start_detached(options) if detach else run_cluster(options))


def checked(workers: list[str] | None) -> tuple[str, ...]:
    """The workers to run, or the usual ones.

    One that cannot be read is refused before anything is started.
    """
    from corral.agent.worker_option import DEFAULTS, parse

    for text in workers or ():
        try:
            parse(text)
        except CorralError as error:
            raise typer.BadParameter(error.message, param_hint="--worker") from None
    return tuple(workers or DEFAULTS)


def start_detached(options: Options) -> int:
    """Start the same in the background, wait until it is ready or has failed."""
    from corral.embedded.folder import Folder, load_state

    folder = Folder(options.load().home.absolute())
    folder.make()
    log = folder.logs / DETACHED_LOG
    with log.open("ab") as file:
        begin = file.tell()
        parent = subprocess.Popen(
            python_command("corral", "up", *options.arguments()),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    give_up_at = time.monotonic() + _DETACHED_START_S
    while parent.poll() is None and time.monotonic() < give_up_at:
        state = load_state(folder)
        if state and state.ready and state.parent.pid == parent.pid:
            _show(log, begin, is_error=False)
            return 0
        time.sleep(0.05)
    _show(log, begin, is_error=True)
    return parent.poll() or 1


def _show(log: Path, begin: int, *, is_error: bool) -> None:
    with log.open("rb") as file:
        file.seek(begin if begin <= os.fstat(file.fileno()).st_size else 0)
        said = file.read().decode("utf-8", "replace").rstrip()
    if said:
        typer.echo(said, err=is_error)

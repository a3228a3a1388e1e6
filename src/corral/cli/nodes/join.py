"""`corral join`: makes this machine a node of a cluster, in the foreground."""

from __future__ import annotations

import ctypes
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.arguments import takes
from corral.cli.options.connect import reach_of
from corral.cli.terminal import errors
from corral.errors import Forbidden, Unauthenticated

if TYPE_CHECKING:
    from pydantic import SecretStr

    from corral.core.nodes.worker import WorkerSpec
    from corral.settings import Settings


@dataclass(frozen=True, slots=True)
class JoinLabels:
    """What this node tells of itself; `taints` as the setting has them."""

    labels: dict[str, str]
    taints: str | None


def marks_of(
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A label of this node; repeatable."),
    ] = None,
    taint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=VALUE]",
            help="Keep away tasks that do not tolerate it; repeatable.",
        ),
    ] = None,
) -> JoinLabels:
    """The options that mark a node, for `takes`."""
    return JoinLabels(_labels(label), ",".join(taint) if taint else None)


def workers_of(
    worker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:CLASS[=TYPE][xN]",
            help="A worker to run here, N runners; repeatable. Else the standard one.",
        ),
    ] = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Only what is launched later.")
    ] = False,
) -> list[str]:
    """The options that choose a node's own workers, for `takes`."""
    from corral.agent.worker_option import DEFAULTS

    return [] if no_worker else worker or list(DEFAULTS)


@takes(chosen=workers_of, marks=marks_of)
def join(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="The manager.")
    ] = None,
    discover: Annotated[
        bool,
        typer.Option("--discover", help="Find the manager on the local network."),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --discover: the cluster to join."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(metavar="T", help="A join token; better CORRAL_JOIN_TOKEN."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The token is in this file.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this node; else its host's.")
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Trust the manager's certificate by this."),
    ] = None,
    home: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The data folder.")
    ] = None,
    own_url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="What the job API calls this node; with http://HOST:PORT it "
            "answers there.",
        ),
    ] = None,
    key_home: Annotated[list[Path] | None, typer.Option(hidden=True)] = None,
    given: Annotated[str | None, typer.Option(hidden=True)] = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
    *,
    chosen: list[str],
    marks: JoinLabels,
) -> None:
    """Join the cluster at URL and serve it until stopped.

    The token is needed once: afterwards this machine has a credential of its own.
    """
    from corral import settings
    from corral.cli.up.launched import end_with, given_worker, own_token

    end_with(parent)
    folder = home or reach_of(ctx).home
    token = _token(token, token_file)
    url = _manager(url, cluster, discover=discover)
    if discover:
        check_found(url, token or _kept_token(folder), ca_file)
    token = own_token(url, key_home) if key_home else token
    config = settings.load(
        home=folder,
        manager_url=url,
        node_name=name,
        join_token=token,
        node_taints=marks.taints,
    )
    own = None if given is None else (given_worker(given),)
    specs = own or _workers(chosen, config.worker_concurrency)
    _serve(config, specs, marks.labels, own_url, ca_file)


def _serve(
    config: Settings,
    workers: tuple[WorkerSpec, ...],
    labels: dict[str, str],
    own_url: str | None,
    ca_file: Path | None,
) -> None:
    from corral.agent.config import AgentConfig
    from corral.agent.life.main import serve
    from corral.cli.serve import agent
    from corral.cli.serve.machine import machine_id
    from corral.cli.terminal.log import configure, secrets_of

    configure(config.log_level, _log_format(config), secrets_of(config))
    setup = AgentConfig(
        manager_url=config.manager_url,
        home=config.home,
        name=config.node_name or socket.gethostname(),
        join_token=_text(config.join_token),
        workers=workers,
        labels={**agent.node_labels(config), **labels},
        taints=agent.node_taints(config),
        url=own_url,
        direct_url=_text(config.redis_url),
        ca_file=ca_file.absolute() if ca_file else None,
        join_wait_s=config.worker_registration_timeout_s,
        code=agent.code_policy(config),
        containers=agent.container_policy(config),
        peer_port=agent.peer_port(config),
        gpus=agent.gpu_policy(config),
        breaker=agent.breaker_policy(config),
        machine=machine_id(),
        owner=agent.owner_policy(config),
        log_format=_log_format(config),
        worker_env=config.worker_env,
        send_events=config.worker_send_task_events,
        allow_plaintext=config.allow_plaintext,
    )
    try:
        raise typer.Exit(serve(setup))
    except Unauthenticated as error:
        # Not about an API key, which the general answer would speak of.
        typer.echo(f"Error: {errors.one_line(error.message)}", err=True)
        raise typer.Exit(errors.FAILED) from None


def _manager(url: str | None, cluster: str | None, *, discover: bool) -> str:
    """The URL that was given, or the one manager that announces itself."""
    if discover is (url is not None) or (cluster and not discover):
        raise typer.BadParameter("give the manager's URL, or --discover [--cluster]")
    if url is not None:
        return url
    from corral.cli.serve.discovery import find
    from corral.errors import Unreachable

    found = find(cluster)
    if not found:
        which = f"of a cluster {cluster!r} " if cluster else ""
        raise Unreachable(
            f"no manager {which}announces itself on this network; it must run with "
            "CORRAL_DISCOVERY=true, or give its URL"
        )
    if len(found) > 1:
        for one in found:
            typer.echo(f"  {errors.one_line(str(one))}", err=True)
        raise typer.BadParameter(
            "several managers announce themselves: name the cluster with --cluster, "
            "or give the URL"
        )
    typer.echo(f"found {errors.one_line(str(found[0]))}", err=True)
    return found[0].url


def check_found(url: str, token: str | None, ca_file: Path | None) -> None:
    """Nobody gets the token because they were the first to answer.

    Without a token nothing new is shown: a credential goes to its own manager alone.
    """
    from corral.cli.serve.discovery import proves

    if token is not None and not proves(url, token, ca_file):
        raise Forbidden(
            f"the manager found at {errors.one_line(url)} does not prove that it made "
            "this join token: nothing was sent to it. Give its URL instead of "
            "--discover, or set CORRAL_MANAGER_URL there if it is behind a proxy"
        )


def _kept_token(home: Path | None) -> str | None:
    """The join token of the settings."""
    from corral import settings

    return _text(settings.load(home=home).join_token)


def _token(text: str | None, file: Path | None) -> str | None:
    if text is not None and file is not None:
        raise typer.BadParameter("give --token or --token-file, not both")
    if text and not hide_argument(text):
        typer.echo(
            "Others on this machine can read a token on the command line: use "
            "CORRAL_JOIN_TOKEN or --token-file",
            err=True,
        )
    return file.read_text(encoding="utf-8").strip() if file else text


def hide_argument(text: str) -> bool:
    """Write over an argument where lists of processes show it; false if it is there
    still, for only Linux tells where that is.
    """
    secret = text.encode()
    try:
        # What follows the name begins with field 3; 48 and 49 are the ends of argv.
        told = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(told[45]), int(told[46])
    except (OSError, ValueError, IndexError):
        return False
    shown = ctypes.string_at(start, end - start) if start < end else b""
    if secret not in shown:
        return False
    while (place := shown.find(secret)) >= 0:
        ctypes.memset(start + place, ord("*"), len(secret))
        shown = ctypes.string_at(start, end - start)
    return True


def _labels(options: list[str] | None) -> dict[str, str]:
    pairs = [option.partition("=") for option in options or ()]
    if not all(key and middle for key, middle, _ in pairs):
        raise typer.BadParameter("a label reads KEY=VALUE", param_hint="--label")
    return {key: value for key, _, value in pairs}


def _text(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None


def _workers(options: list[str], concurrency: int) -> tuple[WorkerSpec, ...]:
    from corral.agent.worker_option import parse_all
    from corral.errors import InvalidField

    try:
        return parse_all(options, concurrency)
    except InvalidField as error:
        raise typer.BadParameter(error.message, param_hint="--worker") from None


def _log_format(config: Settings) -> str:
    """People watch this command: plain text, unless the settings say JSON."""
    return config.log_format if "log_format" in config.origins else "text"

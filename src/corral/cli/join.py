"""`corral join`: makes this machine a node of a cluster, in the foreground."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import fault
from corral.cli.connect import reach_of
from corral.errors import Unauthenticated

if TYPE_CHECKING:
    from pydantic import SecretStr

    from corral.core.worker import WorkerSpec
    from corral.settings import Settings


def join(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="The manager.")],
    token: Annotated[
        str | None,
        typer.Option(metavar="T", help="A join token; else CORRAL_JOIN_TOKEN."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The token is in this file.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this node; else its host's.")
    ] = None,
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
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A label of this node; repeatable."),
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
) -> None:
    """Join the cluster at URL and serve it until stopped.

    The token is needed once: afterwards this machine has a credential of its own.
    """
    from corral import settings
    from corral.cli.launched import end_with, given_worker, own_token

    end_with(parent)
    if key_home:
        token = own_token(url, key_home)
    config = settings.load(
        home=home or reach_of(ctx).home,
        manager_url=url,
        node_name=name,
        join_token=_token(token, token_file),
    )
    specs = () if no_worker else _workers(worker, config.worker_concurrency)
    if given is not None:
        specs = (given_worker(given),)
    _serve(config, specs, _labels(label), own_url, ca_file)


def _serve(
    config: Settings,
    workers: tuple[WorkerSpec, ...],
    labels: dict[str, str],
    own_url: str | None,
    ca_file: Path | None,
) -> None:
    from corral.agent.config import AgentConfig
    from corral.agent.main import serve
    from corral.cli.log import configure
    from corral.cli.node_policy import code_policy, container_policy, gpu_policy

    configure(config.log_level, _log_format(config))
    setup = AgentConfig(
        manager_url=config.manager_url,
        home=config.home,
        name=config.node_name or socket.gethostname(),
        join_token=_text(config.join_token),
        workers=workers,
        labels=labels,
        url=own_url,
        direct_url=_text(config.redis_url),
        ca_file=ca_file.absolute() if ca_file else None,
        join_wait_s=config.worker_registration_timeout_s,
        code=code_policy(config),
        containers=container_policy(config),
        gpus=gpu_policy(config),
    )
    try:
        raise typer.Exit(serve(setup))
    except Unauthenticated as error:
        # Not about an API key, which the general answer would speak of.
        typer.echo(f"Error: {fault.one_line(error.message)}", err=True)
        raise typer.Exit(fault.FAILED) from None


def _token(text: str | None, file: Path | None) -> str | None:
    if text is not None and file is not None:
        raise typer.BadParameter("give --token or --token-file, not both")
    return file.read_text(encoding="utf-8").strip() if file else text


def _labels(options: list[str] | None) -> dict[str, str]:
    pairs = [option.partition("=") for option in options or ()]
    if not all(key and middle for key, middle, _ in pairs):
        raise typer.BadParameter("a label reads KEY=VALUE", param_hint="--label")
    return {key: value for key, _, value in pairs}


def _text(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None


def _workers(options: list[str] | None, concurrency: int) -> tuple[WorkerSpec, ...]:
    from corral.agent.worker_option import DEFAULTS, parse_all
    from corral.errors import InvalidField

    try:
        return parse_all(options or DEFAULTS, concurrency)
    except InvalidField as error:
        raise typer.BadParameter(error.message, param_hint="--worker") from None


def _log_format(config: Settings) -> str:
    """People watch this command: plain text, unless the settings say JSON."""
    return config.log_format if "log_format" in config.origins else "text"

"""`corral dashboard`: opens the web pages of the manager, signed in."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli.options.connect import connect
from corral.cli.terminal import output


def dashboard(
    ctx: typer.Context,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the link, open nothing.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Open the dashboard in a browser, with a link that signs in once.

    The link is good for two minutes, and for the one who opens it first.
    """
    with connect(ctx) as client:
        link = client.dashboard_link()
        url = client.url.rstrip("/") + link.path
    if as_json:
        output.echo_json({"url": url, "expires_in_s": link.expires_in_s})
        return
    typer.echo(url)
    if print_only:
        return
    import webbrowser

    if not webbrowser.open(url):
        output.hint("No browser here: open this link within two minutes, once.")

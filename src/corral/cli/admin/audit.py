"""`corral audit`: who asked for what, and whether that record is whole."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.arguments import seconds
from corral.cli.options.connect import connect
from corral.cli.terminal import errors, output

if TYPE_CHECKING:
    from corral.wire.access import AuditCheck, AuditEntry

_PAGE = 1000
_COLUMNS: output.Columns[AuditEntry] = {
    "SEQ": lambda row: row.seq,
    "AT": lambda row: row.at,
    "WHO": lambda row: row.name or row.actor or "nobody",
    "ACTION": lambda row: row.action,
    "TARGET": lambda row: row.target,
    "": lambda row: "" if row.allowed else "refused",
    "FROM": lambda row: row.ip,
}
Begin = Annotated[str | None, typer.Option(metavar="TEXT", help="How it begins.")]


def audit(
    ctx: typer.Context,
    actor: Annotated[
        str | None,
        typer.Option(metavar="NAME|ID", help="Only of this key or node."),
    ] = None,
    action: Begin = None,
    target: Begin = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only what was refused.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From then on: 2h, 7d, or an ISO time."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="How many at most.")
    ] = 50,
    verify: Annotated[
        bool, typer.Option("--verify", help="Look through the whole chain instead.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Show who did what, newest first; with --verify whether nobody changed that."""
    if verify:
        _verify(ctx, as_json=as_json)
        return
    rows: list[AuditEntry] = []
    before: int | None = None
    is_intact: bool | None = None
    with connect(ctx) as client:
        while len(rows) < limit:
            page = client.audit(
                actor=actor,
                action=action,
                target=target,
                allowed=False if refused else None,
                since=_since(since),
                before=before,
                limit=min(limit - len(rows), _PAGE),
            )
            rows += page.rows
            before, is_intact = page.cursor, page.is_intact
            if before is None:
                break
    output.show_list(rows, _COLUMNS, as_json=as_json, none="Nothing of that kind.")
    if is_intact is False:
        output.hint("The chain is broken: see 'corral audit --verify'.")


def _since(text: str | None) -> str | None:
    if text is None:
        return None
    with contextlib.suppress(typer.BadParameter):
        return str(-seconds(text))
    return text


def _verify(ctx: typer.Context, *, as_json: bool) -> None:
    with connect(ctx) as client:
        found = client.check_audit()
    if as_json:
        output.echo_json(found.to_dict())
    else:
        typer.echo(_words(found))
    if not found.is_intact:
        raise typer.Exit(errors.FAILED)


def _words(found: AuditCheck) -> str:
    rows = f"rows {found.first_seq} to {found.last_seq}"
    if not found.is_intact:
        return f"broken: {found.fault} ({rows})"
    if found.first_seq < found.keyed_from <= found.last_seq + 1:
        until = found.keyed_from - 1
        return f"whole: {rows}; those up to {until} are of a release without a key"
    return f"whole: {rows}"

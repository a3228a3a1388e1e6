"""`corral doctor`: tests every component and says what to fix; starts nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.connect import reach_of
from corral.cli.terminal import errors, output

if TYPE_CHECKING:
    from corral.doctor.check import CheckResult

_COLOUR = {"ok": "green", "warn": "yellow", "problem": "red"}


def doctor(
    ctx: typer.Context,
    home: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The data folder.")
    ] = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Test every component of this machine and say what to fix.

    Reads the settings that 'corral up' and 'corral join' read, needs no cluster and
    changes nothing. The exit code is 1 when there is a problem.
    """
    from corral.doctor.check import CheckStatus, count
    from corral.doctor.examine import examine, plan

    _quiet(is_debug=bool(ctx.find_root().params.get("debug")))
    reach = reach_of(ctx)
    found: list[CheckResult] = []
    for lines in examine(plan(reach.url, home or reach.home)):
        found += lines
        if not as_json:
            _print(lines)
    problems, warnings = (
        count(found, CheckStatus.PROBLEM),
        count(found, CheckStatus.WARN),
    )
    if as_json:
        checks = [asdict(line) for line in found]
        told = {"problems": problems, "warnings": warnings, "checks": checks}
        output.echo_json(told)
    else:
        output.hint(f"{_many(problems, 'problem')}, {_many(warnings, 'warning')}")
    raise typer.Exit(errors.FAILED if problems else 0)


def _quiet(*, is_debug: bool) -> None:
    """What the rooms log on the way is not for this command's reader."""
    if is_debug:
        logging.basicConfig(level=logging.INFO)
    else:
        logging.getLogger("corral").addHandler(logging.NullHandler())


def _print(lines: Sequence[CheckResult]) -> None:
    for line in lines:
        verdict = typer.style(f"{line.verdict:<7}", fg=_COLOUR[line.verdict])
        text = f"{line.found} -> {line.fix}" if line.fix else line.found
        typer.echo(f"{verdict} {line.name:<12} {errors.one_line(text)}")


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

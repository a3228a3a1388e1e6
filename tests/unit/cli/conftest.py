"""The `corral` command in this process, against a stand-in manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corral.cli.main import app
from tests.unit.client.stand_in import StandIn, serve


class Ran:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


Corral = Callable[..., Ran]


@pytest.fixture
def manager() -> Iterator[StandIn]:
    with serve() as stand_in:
        yield stand_in


@pytest.fixture
def corral(manager: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corral:
    """Run `corral ARGUMENTS` against the stand-in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path))
    monkeypatch.setenv("CORRAL_API_KEY", "corral_k_s")
    monkeypatch.setenv("CORRAL_MANAGER_URL", manager.url)
    monkeypatch.delenv("CORRAL_DEBUG", raising=False)

    def run(*arguments: str, stdin: str | None = None) -> Ran:
        result = CliRunner().invoke(app, list(arguments), input=stdin)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run

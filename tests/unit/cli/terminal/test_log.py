"""The logs of manager and agent: format, level, the request's id, no secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from corral import settings
from corral.cli.terminal.log import configure, secrets_of
from corral.log_line import MASK, bound

log = logging.getLogger("corral.tests")


@pytest.fixture(autouse=True)
def kept_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.spec("C44")
def test_json_lines_carry_the_request_they_are_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("info", "json")
    token = bound.set({"request_id": "r-1"})
    log.info("task_submitted", extra={"task_id": "t"})
    log.info("task_scheduled", extra={"task_id": "u", "request_id": "r-2"})
    log.debug("too quiet")
    bound.reset(token)
    log.warning("on its own")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = [(line["event"], line["level"], line.get("request_id")) for line in lines]
    assert told == [
        ("task_submitted", "info", "r-1"),
        ("task_scheduled", "info", "r-2"),
        ("on its own", "warning", None),
    ]
    assert lines[0]["task_id"] == "t"
    assert lines[0]["logger"] == "corral.tests"


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure("DEBUG", "text")
    log.debug("order_sent", extra={"order_id": "o"})
    (line,) = capsys.readouterr().err.splitlines()
    assert "order_sent" in line
    assert "order_id=o" in line
    assert not line.startswith("{")


@pytest.mark.spec("D23")
def test_secrets_of_the_settings_are_in_no_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_DATABASE_PASSWORD", "open-sesame")
    configure("INFO", "json", secrets_of(settings.load()))
    try:
        raise RuntimeError("cannot log in with open-sesame")
    except RuntimeError:
        log.exception(
            "the database said no to open-sesame", extra={"dsn": "open-sesame"}
        )
    said = capsys.readouterr().err
    assert "open-sesame" not in said
    assert said.count(MASK) >= 3

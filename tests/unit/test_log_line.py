"""Log lines: their fields, in both formats, and that no secret is in them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from corral.core.access.key import write_key
from corral.log_line import MASK, LineFormatter, Redaction, bound, said_in

KEY = write_key("0123456789ab", "a" * 43)
TOLD = "swordfish-of-mine"


@pytest.mark.spec("D23")
@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (f"the key {KEY} is refused", "is refused"),
        ("redis://:hunter22@cache:6379/0 is away", "@cache:6379/0 is away"),
        ("postgresql://corral:hunter22@db/corral", "postgresql://corral:"),
        ("Authorization: Bearer hunter22hunter22", "Authorization"),
        ("GET /pull?token=hunter22&model=tiny", "model=tiny"),
        ('{"password": "hunter22", "user": "ann"}', '"user": "ann"'),
        ("CORRAL_API_KEY=hunter22 corral up", "corral up"),
        ("from hf_hunter22hunter22abc", "from"),
        (f"somebody said {TOLD} aloud", "aloud"),
    ],
)
def test_what_looks_like_a_secret_or_is_known_as_one_is_not_said(
    said: str, kept: str
) -> None:
    written = Redaction([TOLD]).text(said)
    assert MASK in written
    assert kept in written
    for secret in (KEY, "hunter22", TOLD):
        assert secret not in written


@pytest.mark.parametrize(
    "said",
    [
        "registered as n-5b37dc8b19, epoch 3",
        "http://localhost:8002/tasks/0198",
        "corral_scheduler_decision_seconds_count",
        "the token is refused",
        "task 0198c3f0-7e1e-7000-8000-000000000000 of box@lan",
    ],
)
def test_what_is_no_secret_stays_as_it_is(said: str) -> None:
    assert Redaction([TOLD]).text(said) == said


def test_fields_that_are_called_like_secrets_are_masked_at_any_depth() -> None:
    event: dict[str, Any] = {
        "event": "x",
        "api_key": "short",
        "more": {"password": "pw", "list": [f"at {TOLD}"], "count": 3},
    }
    Redaction([TOLD])(None, "info", event)
    assert event["api_key"] == MASK
    assert event["more"] == {"password": MASK, "list": [f"at {MASK}"], "count": 3}


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    log = logging.getLogger("tests.line")
    log.propagate = False
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)
    yield text
    log.removeHandler(handler)
    log.propagate = True


def use(log_format: str) -> logging.Logger:
    log = logging.getLogger("tests.line")
    log.handlers[0].setFormatter(
        LineFormatter(log_format, Redaction([TOLD]), {"worker_id": "w-1"})
    )
    return log


def test_a_json_line_has_what_was_said_and_added_and_bound(stream: io.StringIO) -> None:
    log = use("json")
    token = bound.set({"request_id": "r-1"})
    try:
        log.info("task %s", "received", extra={"task_id": "t", "note": TOLD})
        log.info("other", extra={"request_id": "r-2"})
    finally:
        bound.reset(token)
    first, second = map(json.loads, stream.getvalue().splitlines())
    at = first.pop("timestamp")
    assert at.endswith("Z")
    assert first == {
        "event": "task received",
        "level": "info",
        "logger": "tests.line",
        "worker_id": "w-1",
        "task_id": "t",
        "note": MASK,
        "request_id": "r-1",
    }
    assert second["request_id"] == "r-2"


def test_a_text_line_can_be_read_and_a_traceback_follows_it(
    stream: io.StringIO,
) -> None:
    log = use("text")
    try:
        raise ValueError(f"with {TOLD}")
    except ValueError:
        log.exception("it broke", extra={"task_id": "t"})
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("ERROR tests.line: it broke worker_id=w-1 task_id=t")
    assert rest[-1] == f"ValueError: with {MASK}"


def test_the_words_of_a_line_are_found_in_either_format() -> None:
    assert said_in('{"event": "the port is taken", "level": "error"}') == (
        "the port is taken"
    )
    for other in ("Killed", "{no json", '{"level": "info"}'):
        assert said_in(other) == other

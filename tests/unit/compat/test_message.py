"""Messages as Celery's own code writes them, and as nobody should."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from celery import Celery
from hypothesis import given
from hypothesis import strategies as st

from corral.compat.message import CeleryCall, NotCarriedOut, NotJson, read, task_id_of
from corral.errors import BadRequest, InvalidJson

CLIENT = Celery("client", set_as_current=False)


def message(protocol: int = 2, priority: int = 0, **asked: Any) -> dict[str, Any]:
    """A message in the form kombu keeps in a Redis list."""
    make = CLIENT.amqp.as_task_v2 if protocol == 2 else CLIENT.amqp.as_task_v1
    made = make("id-1", "shop.add", **asked)
    body = json.dumps(made.body).encode()
    return {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": made.headers,
        "properties": {
            **made.properties,
            "priority": priority,
            "body_encoding": "base64",
        },
    }


def raw(**asked: Any) -> bytes:
    return json.dumps(message(**asked)).encode()


@pytest.mark.parametrize("protocol", [1, 2])
def test_both_protocols_say_the_same(protocol: int) -> None:
    call = read(
        raw(
            protocol=protocol,
            args=(1, 2),
            kwargs={"z": None},
            eta="2026-03-01T12:00:00+00:00",
            expires="2026-03-01T13:00:00+00:00",
            time_limit=30,
            soft_time_limit=20,
            retries=3,
            group_id="g",
            priority=6,
        )
    )
    assert (call.task_id, call.name) == ("id-1", "shop.add")
    assert (call.args, call.kwargs) == ([1, 2], {"z": None})
    assert call.options == {
        "task_id": "id-1",
        "run_after": "2026-03-01T12:00:00+00:00",
        "deadline": "2026-03-01T13:00:00+00:00",
        "timeout": 30,
        "priority": -6,
    }
    assert call.wants_result


def test_plain_call_says_nothing_but_its_id_and_rank() -> None:
    assert read(raw()).options == {"task_id": "id-1", "priority": 0}
    assert not read(raw(ignore_result=True)).wants_result
    assert read(raw(soft_time_limit=20)).options["timeout"] == 20


@pytest.mark.parametrize(
    "change",
    [
        {"content-type": "application/x-python-serialize"},
        {"content-type": "application/x-yaml"},
        {"content-type": None},
        {"content-encoding": "binary"},
        {"headers": {"task": "a", "id": "b", "compression": "application/x-gzip"}},
    ],
)
def test_only_plain_json_is_taken(change: dict[str, Any]) -> None:
    with pytest.raises(NotJson) as refused:
        read(json.dumps(message() | change).encode())
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("protocol", "part"),
    [(2, "callbacks"), (2, "errbacks"), (2, "chain"), (2, "chord"), (1, "callbacks")],
)
def test_what_only_celery_carries_out_is_refused(protocol: int, part: str) -> None:
    with pytest.raises(NotCarriedOut, match=part):
        read(raw(protocol=protocol, **{part: [{"task": "shop.next"}]}))


@pytest.mark.parametrize("body", ["[1, {}", "[[NaN], {}, {}]", "[" * 100_000])
def test_what_is_no_json_is_refused(body: str) -> None:
    text = base64.b64encode(body.encode()).decode()
    with pytest.raises(InvalidJson):
        read(json.dumps(message() | {"body": text}).encode())


@pytest.mark.parametrize("body", ["{}", "[1]", "[1, {}, {}]", "[[], [], {}]", "7"])
def test_body_of_another_shape_is_refused(body: str) -> None:
    text = base64.b64encode(body.encode()).decode()
    with pytest.raises(BadRequest):
        read(json.dumps(message() | {"body": text}).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["body", "headers", "properties", "task", "id", "args"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_a_call_or_refused(value: Any) -> None:
    text = json.dumps(value).encode()
    task_id_of(text)
    with pytest.raises(BadRequest):
        read(text)


@given(JSON, JSON)
def test_any_content_is_a_call_or_refused(body: Any, headers: Any) -> None:
    odd = message() | {"headers": headers}
    odd["body"] = base64.b64encode(json.dumps(body).encode()).decode()
    text = json.dumps(odd).encode()
    task_id_of(text)
    with contextlib.suppress(BadRequest):
        assert isinstance(read(text), CeleryCall)


def test_id_is_found_in_a_message_that_cannot_be_used() -> None:
    assert task_id_of(json.dumps(message() | {"body": "?"}).encode()) == "id-1"
    assert task_id_of(raw(protocol=1)) == "id-1"
    assert task_id_of(b"\xff") is None

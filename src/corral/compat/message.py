"""Reads a message a plain Celery client put on a broker: JSON only, protocols 2 and 1.

Pure: it talks to nobody, and whatever else stands in a message is never loaded.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from corral.client import TaskOptions
from corral.errors import BadRequest, InvalidField, InvalidJson

JSON = "application/json"
_LINKED = ("callbacks", "errbacks", "chain", "chord")


class NotJson(BadRequest):
    """The message is pickled, compressed or otherwise not plain JSON."""

    code = "not_json"


class NotCarriedOut(BadRequest):
    """The message asks for something only Celery's own workers do."""

    code = "not_carried_out"


@dataclass(frozen=True, slots=True)
class CeleryCall:
    """What a client asked for."""

    task_id: str
    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    options: TaskOptions
    wants_result: bool


def task_id_of(raw: bytes) -> str | None:
    """The id somebody may wait for, also of a message that cannot be used."""
    try:
        told = json.loads(raw)
        for part, name in (("headers", "id"), ("properties", "correlation_id")):
            if found := told[part].get(name):
                return str(found)
    except (ValueError, RecursionError, AttributeError, LookupError, TypeError):
        pass
    return None


def read(raw: bytes) -> CeleryCall:
    """The call in a message, as kombu writes it into a Redis list.

    Raises:
        BadRequest: why it cannot be taken, in one line.
    """
    told = _object(_parse(raw, "the message"), "the message")
    headers = _object(told.get("headers") or {}, "headers")
    properties = _object(told.get("properties") or {}, "properties")
    body = _parse(_body(told, headers, properties), "the body")
    if "task" in headers:
        args, kwargs, embed = _protocol_2(body)
        facts = headers
    else:
        facts = embed = _object(body, "the body")
        args, kwargs = facts.get("args") or [], facts.get("kwargs") or {}
    _refuse_canvas(embed)
    return _call(facts, properties, args, kwargs)


def _call(
    facts: Mapping[str, Any], properties: Mapping[str, Any], args: Any, kwargs: Any
) -> CeleryCall:
    task_id, name = facts.get("id"), facts.get("task")
    if not isinstance(task_id, str) or not isinstance(name, str):
        raise InvalidField("the message has no task name or no id", field="task")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise InvalidField("args must be a list and kwargs a mapping", field="args")
    return CeleryCall(
        task_id,
        name,
        args,
        kwargs,
        _options(task_id, facts, properties),
        not facts.get("ignore_result"),
    )


def _options(
    task_id: str, facts: Mapping[str, Any], properties: Mapping[str, Any]
) -> TaskOptions:
    """What the manager is told beside type and payload; it checks the values."""
    options: TaskOptions = {"task_id": task_id}
    if (eta := facts.get("eta")) is not None:
        options["run_after"] = eta
    if (expires := facts.get("expires")) is not None:
        options["deadline"] = expires
    limits = facts.get("timelimit")
    if isinstance(limits, list) and (limit := next(filter(None, limits), None)):
        options["timeout"] = limit
    if isinstance(level := properties.get("priority"), int):
        # In a Redis broker 0 goes first.
        options["priority"] = -level
    return options


def _protocol_2(body: Any) -> tuple[Any, Any, Mapping[str, Any]]:
    if not isinstance(body, list) or len(body) != 3:
        raise InvalidField("the body must be [args, kwargs, embed]", field="body")
    return body[0], body[1], _object(body[2] or {}, "embed")


def _refuse_canvas(embed: Mapping[str, Any]) -> None:
    """Left out in silence it would change what a program does."""
    if found := [part for part in _LINKED if embed.get(part)]:
        raise NotCarriedOut(
            f"{', '.join(found)}: chains, chords and callbacks are not carried out "
            "by Corral's ingress; nothing was run"
        )


def _body(
    told: Mapping[str, Any],
    headers: Mapping[str, Any],
    properties: Mapping[str, Any],
) -> bytes:
    kind, body = told.get("content-type"), told.get("body")
    if kind != JSON:
        raise NotJson(f"content type {str(kind)[:80]!r}: only {JSON} is taken")
    if headers.get("compression"):
        raise NotJson("compressed messages are not taken")
    if str(told.get("content-encoding")).lower() not in ("utf-8", "utf8"):
        raise NotJson("only messages encoded as utf-8 are taken")
    if not isinstance(body, str):
        raise InvalidField("the message has no body", field="body")
    if properties.get("body_encoding") != "base64":
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError:
        raise InvalidField("the body is not base64", field="body") from None


def _parse(text: bytes, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidJson(f"{what} is not JSON: {str(error)[:200]}") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} has no form in JSON")


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidField(f"{what} must be an object", field=what)
    return value

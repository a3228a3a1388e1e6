"""A call of a Celery task as Corral takes it: job type, payload, options.

Decides nothing about where it is sent, and sends nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kombu.utils.json import JSONEncoder, object_hook

from corral.client import TaskOptions
from corral.core.tasks.job_type import NAME

PREFIX = "celery."
MAX_RETRIES = 1000
REFUSED = ("link", "link_error", "chain", "chord", "group_id")
_BROKERS_WITH_ZERO_FIRST = ("redis", "rediss", "sentinel")


def job_type(task_name: str) -> str:
    """The job type of a Celery task: its name after `celery.`.

    Characters that job types do not have become `-`, and a digest keeps such names
    apart; names that are too long are cut in the same way.
    """
    plain = PREFIX + task_name
    if NAME.fullmatch(plain):
        return plain
    digest = hashlib.sha256(task_name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9._:-]', '-', plain)[:119]}-{digest}"


def pack(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of a call, as plain JSON values.

    Dates, UUIDs, decimals and bytes are marked the way Celery's JSON serializer
    marks them, so that the task gets them back as they were.

    Raises:
        TypeError: for what JSON cannot carry.
    """
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise TypeError(f"args of {name} must be a list or tuple, not {args!r:.60}")
    if not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs of {name} must be a mapping, not {kwargs!r:.60}")
    try:
        plain: dict[str, Any] = mark(
            {"task": name, "args": list(args), "kwargs": dict(kwargs)}
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(
            f"the arguments of {name} cannot be sent as JSON: {error}"
        ) from error
    return plain


def mark(value: Any) -> Any:
    """Plain JSON values for `value`; raises what the encoder raises."""
    text = json.dumps(value, cls=JSONEncoder, allow_nan=False, ensure_ascii=False)
    text.encode()  # a lone surrogate is no Unicode, and nobody could read it
    return json.loads(text)


def revive(value: Any) -> Any:
    """Marked values back as what they were; everything else stays as it is."""
    if isinstance(value, list):
        return [revive(each) for each in value]
    if not isinstance(value, dict):
        return value
    try:
        return object_hook({k: revive(v) for k, v in value.items()})
    except (ValueError, TypeError, ArithmeticError):
        # Only looks marked: it is somebody's own dictionary.
        return value


def retries_of(task: Any) -> int:
    """How often Corral may try the task again after an attempt that failed.

    Celery's workers retry only when the task asks; Corral retries a whole attempt.
    So retries are given to those tasks alone which ask somewhere in their code.
    """
    limit = getattr(task, "corral_retries", None)
    if limit is None:
        limit = _limit_of(task)
    return MAX_RETRIES if limit is None else min(int(limit), MAX_RETRIES)


def _limit_of(task: Any) -> int | None:
    """As Celery has it; None is without end."""
    asks, most = getattr(task, "autoretry_for", None), task.max_retries
    if asks:
        most = (getattr(task, "retry_kwargs", None) or {}).get("max_retries", most)
    elif not _asks_for_retry(task):
        return 0
    return None if most is None else int(most)


def _asks_for_retry(task: Any) -> bool:
    run = getattr(task.run, "__func__", task.run)
    code = getattr(run, "__code__", None)
    return code is not None and "retry" in code.co_names


def check_supported(name: str, asked: Mapping[str, Any]) -> None:
    """Refuse what only Celery's own workers carry out.

    Left out silently it would change what a program does.

    Raises:
        NotImplementedError: it is a canvas task of Celery, or has callbacks.
    """
    found = [option for option in REFUSED if asked.get(option)]
    if found or name.startswith("celery."):
        raise NotImplementedError(
            f"{', '.join(found) or name} does not work on Corral, nor do chains, "
            "chords, groups and callbacks (docs/from-celery.md); nothing was sent"
        )


def options_of(app: Any, task: Any, asked: Mapping[str, Any]) -> TaskOptions:
    """What Corral is told beside type and payload.

    `task` is None when only its name is known here.
    """
    options: TaskOptions = {"task_id": asked["task_id"]}
    if after := _moment(app, asked.get("eta") or asked.get("countdown")):
        options["run_after"] = after
    deadline = _moment(app, _given(task, asked, "expires"))
    if deadline is not None:
        options["deadline"] = deadline
    if limit := _time_limit(app, task, asked):
        options["timeout"] = float(limit)
    if (level := _given(task, asked, "priority")) is not None:
        options["priority"] = -level if _is_zero_first(app) else level
    if task is not None and (retries := retries_of(task)):
        options["retries"] = retries
    return options


def _given(task: Any, asked: Mapping[str, Any], name: str) -> Any:
    value = asked.get(name)
    return getattr(task, name, None) if value is None else value


def _time_limit(app: Any, task: Any, asked: Mapping[str, Any]) -> Any:
    names = ("time_limit", "soft_time_limit")
    own = [_given(task, asked, name) for name in names]
    return next(filter(None, [*own, *(app.conf[f"task_{name}"] for name in names)]), 0)


def _moment(app: Any, value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=app.timezone)
    return value


def _is_zero_first(app: Any) -> bool:
    """With a Redis broker 0 goes first; with others the largest number does."""
    broker = str(app.conf.broker_write_url or app.conf.broker_url or "")
    return broker.partition("://")[0].split("+")[0] in _BROKERS_WITH_ZERO_FIRST

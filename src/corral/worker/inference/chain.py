"""Chains of models: what tasks before this one answered, in the words of its request.

`{{caption}}` in any text of a payload stands for that field of what the one task it
depends on answered; with several, `{{ID.caption}}` says which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from corral.worker.inference.errors import RequestRefused

_FIELD = re.compile(r"\{\{\s*(?:([\w-]+)\.)?(\w+)\s*\}\}")


def filled(payload: Any, inputs: Mapping[str, Any]) -> Any:
    """The payload with what tasks before it answered.

    Raises:
        Refused: it asks for what no answer has.
    """
    if not inputs:
        return payload
    if isinstance(payload, str):
        return _FIELD.sub(lambda found: _value(found, inputs), payload)
    if isinstance(payload, list):
        return [filled(part, inputs) for part in payload]
    if isinstance(payload, dict):
        return {name: filled(part, inputs) for name, part in payload.items()}
    return payload


def _value(found: re.Match[str], inputs: Mapping[str, Any]) -> str:
    task_id, field = found.groups()
    if task_id is None and len(inputs) == 1:
        (task_id,) = inputs
    if task_id is None:
        raise RequestRefused(
            f"{found[0]}: it depends on several tasks; say {{{{ID.{field}}}}}"
        )
    if task_id not in inputs:
        raise RequestRefused(f"{found[0]}: it does not depend on a task {task_id}")
    answer = inputs[task_id]
    # Answers in the envelope of other systems have theirs one step further in.
    for place in (answer, answer.get("result") if isinstance(answer, dict) else None):
        if isinstance(place, dict) and field in place:
            value = place[field]
            return value if isinstance(value, str) else json.dumps(value)
    raise RequestRefused(
        f"{found[0]}: the answer of task {task_id} has no field {field}"
    )

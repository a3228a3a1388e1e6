"""Checks payloads and results against the JSON schemas of their job type.

A compiled schema is kept by its text. Nothing is ever fetched: a `$ref` must lead to
a place in the schema itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from corral.core.tasks.job_type import JobType
from corral.core.tasks.outcome import Outcome, OutcomeKind
from corral.core.tasks.task import TaskError
from corral.errors import InvalidField

if TYPE_CHECKING:
    from referencing import Resource

BAD_RESULT = "bad_result"
_LOOKED_AT = 20
_MESSAGE_LIMIT = 500
_DEPTH_LIMIT = 64


def check_schema(text: str, field: str) -> str:
    """`text` when it is a JSON schema that can be used.

    Raises:
        InvalidField: naming what is wrong with it.
    """
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    try:
        _compiled(text)
    except SchemaError as e:
        raise InvalidField(
            f"{_place(field, e)} is no valid schema: {_short(e.message)}", field=field
        ) from None
    except Unresolvable as e:
        raise InvalidField(
            f"{field} has a $ref to {e.ref!r}, which is not in it; nothing is fetched",
            field=field,
        ) from None
    except (RecursionError, msgspec.DecodeError) as e:
        raise InvalidField(f"{field} cannot be used: {e}", field=field) from None
    return text


def check_payload(job_type: JobType, payload: str) -> None:
    """Raises InvalidField with the path of the wrong field."""
    if job_type.input_schema is None:
        return
    if found := _first_fault(job_type.input_schema, payload, "parameters"):
        field, message = found
        raise InvalidField(
            f"{field}: {message} (input schema of '{job_type.name}')", field=field
        )


def check_any(job_types: Sequence[JobType], payload: str) -> None:
    """Raises InvalidField when none of these types takes such a payload."""
    refusal: InvalidField | None = None
    for job_type in job_types:
        try:
            check_payload(job_type, payload)
            return
        except InvalidField as e:
            refusal = refusal or e
    if refusal is not None:
        raise refusal


def checked(job_type: JobType | None, outcome: Outcome) -> Outcome:
    """The outcome, or what it is when its result is not what the type promises."""
    if (
        job_type is None
        or job_type.output_schema is None
        or outcome.kind is not OutcomeKind.COMPLETED
    ):
        return outcome
    found = _first_fault(job_type.output_schema, outcome.result or "null", "result")
    if found is None:
        return outcome
    field, message = found
    text = f"{field}: {message} (output schema of '{job_type.name}')"
    return bad_result(outcome, text)


def bad_result(outcome: Outcome, message: str) -> Outcome:
    """An outcome that cannot be kept; another try would give the same."""
    return Outcome(
        outcome.task_id,
        outcome.attempt,
        OutcomeKind.FAILED,
        error=TaskError(BAD_RESULT, message),
        started_at=outcome.started_at,
        duration_s=outcome.duration_s,
        is_final=True,
        load_s=outcome.load_s,
    )


def _first_fault(schema: str, text: str, field: str) -> tuple[str, str] | None:
    """(path of the wrong field, what is wrong) or None."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        value = msgspec.json.decode(text)
        # A list of a million wrong things need not be read to its end.
        error = best_match(islice(_compiled(schema).iter_errors(value), _LOOKED_AT))
    except (RecursionError, Unresolvable, msgspec.DecodeError, ValueError) as e:
        return field, f"it cannot be checked: {_short(str(e))}"
    return None if error is None else (_place(field, error), _short(error.message))


def _place(field: str, error: Any) -> str:
    path = list(error.absolute_path)
    if error.validator == "required" and isinstance(error.instance, dict):
        path += [n for n in error.validator_value if n not in error.instance][:1]
    return field + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)


def _short(message: str) -> str:
    return message if len(message) <= _MESSAGE_LIMIT else f"{message[:_MESSAGE_LIMIT]}…"


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Any:
    """A validator; the libraries are loaded when the first schema is."""
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Resource
    from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

    schema = msgspec.json.decode(text)
    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    # Empty, and without a way to retrieve: the schema's own parts and nothing else.
    _check_references(resource, EMPTY_REGISTRY.resolver_with_root(resource), 0)
    return kind(schema, registry=EMPTY_REGISTRY)


def _check_references(resource: Resource[Any], resolver: Any, depth: int) -> None:
    if depth > _DEPTH_LIMIT:
        raise RecursionError("it is nested too deeply")
    contents = resource.contents
    if isinstance(contents, dict):
        for word in ("$ref", "$dynamicRef"):
            if isinstance(reference := contents.get(word), str):
                resolver.lookup(reference)
    for part in resource.subresources():
        _check_references(part, resolver.in_subresource(part), depth + 1)

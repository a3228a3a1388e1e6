"""A script to run: the payload of the job type `run_script`, read and checked.

Pure: it knows neither where the script runs nor how it is kept apart from others.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.core.tasks.environment import Environment, from_plain
from corral.errors import InvalidField

JOB_TYPE = "run_script"
# The one kind of Corral's own variables that is part of a payload: a script's place
# in its array.
ARRAY_ID = "CORRAL_ARRAY_ID"
ARRAY_INDEX = "CORRAL_ARRAY_INDEX"
ARRAY_COUNT = "CORRAL_ARRAY_COUNT"
_ARRAY = frozenset({ARRAY_ID, ARRAY_INDEX, ARRAY_COUNT})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_KNOWN = frozenset(
    {
        "environment",
        "command",
        "variables",
        "secrets",
        "limits",
        "network",
        "grace_s",
        "artifacts",
        "gpus",
    }
)
_LONGEST_GRACE_S = 600.0
_DEFAULT_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """What one script may use; None is the node's own rule."""

    memory_mb: int | None = None
    cpus: float | None = None
    processes: int | None = None
    file_size_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """`secrets` maps variables of the script to names of secrets of the cluster.

    `artifacts` are patterns below the working folder that are kept beside what the
    script leaves in `$CORRAL_ARTIFACTS`. `gpus` are ids; None leaves them as they are.
    `network` is `own`, `host` or `none`.
    """

    command: tuple[str, ...]
    environment: Environment | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    limits: ScriptLimits = ScriptLimits()
    network: str = "own"
    grace_s: float = _DEFAULT_GRACE_S
    artifacts: tuple[str, ...] = ()
    gpus: tuple[str, ...] | None = None


def read_script(payload: Any) -> Script:
    """The script a payload asks for.

    Raises:
        InvalidField: what is wrong, naming the field.
    """
    if not isinstance(payload, Mapping):
        raise InvalidField("a script is an object with a command", field="payload")
    if unknown := payload.keys() - _KNOWN:
        known = ", ".join(sorted(_KNOWN))
        raise InvalidField(
            f"a script has no field {min(unknown)!r}; it has {known}",
            field=min(unknown),
        )
    environment = payload.get("environment")
    return Script(
        command=_command(payload.get("command")),
        environment=None if environment is None else from_plain(environment),
        variables=_variables(payload.get("variables")),
        secrets=_secrets(payload.get("secrets")),
        limits=_limits(payload.get("limits")),
        network=_network(payload.get("network", True)),
        grace_s=_number(
            payload.get("grace_s", _DEFAULT_GRACE_S), "grace_s", 0, _LONGEST_GRACE_S
        ),
        artifacts=_patterns(payload.get("artifacts")),
        gpus=_gpus(payload.get("gpus")),
    )


def _network(told: Any) -> str:
    if told == "host":
        return "host"
    return "own" if _flag(told, "network") else "none"


def _command(told: Any) -> tuple[str, ...]:
    """A list as it is; a text split as a shell would, but run without one."""
    if isinstance(told, str):
        try:
            words = shlex.split(told)
        except ValueError as error:
            raise InvalidField(
                f"the command cannot be split: {error}", field="command"
            ) from error
    elif isinstance(told, list | tuple):
        words = list(told)
    else:
        words = []
    if not words or not all(isinstance(word, str) for word in words) or not words[0]:
        raise InvalidField(
            "command must be a text or a list of texts, and not empty", field="command"
        )
    if any("\0" in word for word in words):
        raise InvalidField("a command has no NUL character", field="command")
    return tuple(words)


def _variables(told: Any) -> dict[str, str]:
    if told is None:
        return {}
    if not isinstance(told, Mapping):
        raise InvalidField("variables must map names to texts", field="variables")
    for name, value in told.items():
        if name not in _ARRAY:
            check_variable(name, "variables")
        if not isinstance(value, str) or "\0" in value:
            raise InvalidField(f"{name} must be a text", field=f"variables.{name}")
    return dict(told)


def _secrets(told: Any) -> dict[str, str]:
    """Variables and the secrets they hold; a list names both alike."""
    if told is None:
        return {}
    pairs = dict(told) if isinstance(told, Mapping) else None
    if isinstance(told, list | tuple):
        pairs = {str(name): str(name) for name in told}
    if pairs is None:
        raise InvalidField("secrets is a list of names, or a map", field="secrets")
    for variable, name in pairs.items():
        check_variable(variable, "secrets")
        check_variable(name, "secrets")
    return pairs


def check_variable(name: Any, where: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidField(
            f"{name!r} is no variable name: letters, digits and _", field=where
        )
    if name.startswith("CORRAL_"):
        raise InvalidField(f"{name} is Corral's own", field=where)


def _limits(told: Any) -> ScriptLimits:
    if told is None:
        return ScriptLimits()
    fields = ScriptLimits.__dataclass_fields__
    if not isinstance(told, Mapping) or told.keys() - fields.keys():
        raise InvalidField(f"limits are {', '.join(fields)}", field="limits")
    given: dict[str, Any] = {}
    for name, value in told.items():
        if value is None:
            continue
        low = 0.01 if name == "cpus" else 1
        number = _number(value, f"limits.{name}", low, 1e9)
        given[name] = number if name == "cpus" else int(number)
    return ScriptLimits(**given)


def _number(value: Any, where: str, low: float, high: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:
        raise InvalidField(f"{where} is a number from {low:g} to {high:g}", field=where)
    return float(value)


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidField(f"{where} must be true or false", field=where)
    return value


def _patterns(told: Any) -> tuple[str, ...]:
    if told is None:
        return ()
    if not isinstance(told, list | tuple) or not all(
        isinstance(p, str) and p and not p.startswith("/") and ".." not in p.split("/")
        for p in told
    ):
        raise InvalidField(
            "artifacts are patterns below the working folder", field="artifacts"
        )
    return tuple(told)


def _gpus(told: Any) -> tuple[str, ...] | None:
    if told is None:
        return None
    if not isinstance(told, list | tuple):
        raise InvalidField("gpus is a list of ids", field="gpus")
    return tuple(str(gpu) for gpu in told)

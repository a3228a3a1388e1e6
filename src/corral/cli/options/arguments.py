"""Arguments and options that several commands share: read, checked, completed."""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

from corral.cli.options.connect import FIRST_S, reach_of

if TYPE_CHECKING:
    from corral.client import TaskOptions


_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def model_names(ctx: typer.Context, incomplete: str) -> list[str]:
    from corral.client import Client, Patience
    from corral.errors import CorralError

    reach = reach_of(ctx)
    patience = Patience(total_s=FIRST_S, first_s=FIRST_S)
    try:
        with Client(
            reach.url, home=reach.home, timeout_s=FIRST_S, patience=patience
        ) as client:
            return [n for n in client.model_names() if n.startswith(incomplete)]
    except (CorralError, OSError):
        return []  # Nobody wants to read an error while typing.


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Its name, as tasks give it.", autocompletion=model_names
    ),
]


TypeArgument = Annotated[
    str, typer.Argument(metavar="TYPE", help="The job type, like echo.")
]
ParametersArgument = Annotated[
    str | None,
    typer.Argument(metavar="JSON|@FILE|-", help="Input of the task; - is stdin."),
]
TaskArgument = Annotated[str, typer.Argument(metavar="ID", help="The task.")]
TasksArgument = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Tasks; - reads ids from stdin.")
]
SomeTasksArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", help="Tasks; - reads ids from stdin."),
]
Priority = Annotated[
    str | None,
    typer.Option(metavar="N", help="low, normal, high, critical or a number."),
]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="S", help="Seconds the task may run.", min=0),
]
Retries = Annotated[
    int | None,
    typer.Option(metavar="N", help="How often it is tried again.", min=0),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="A label; may be repeated."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The model it needs.",
        autocompletion=model_names,
    ),
]
RunAfter = Annotated[
    str | None,
    typer.Option(metavar="S|TIME", help="Not before: seconds from now, or ISO time."),
]
Deadline = Annotated[
    str | None,
    typer.Option(metavar="S|TIME", help="Give up then: seconds from now, or ISO time."),
]
DependsOn = Annotated[
    list[str] | None,
    typer.Option(metavar="ID", help="Wait for this task; may be repeated."),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="The same key again makes no second task."),
]


Notify = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="Told when it has ended; may be repeated."),
]


NodeLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--node-label", metavar="KEY=VALUE", help="Its node must have it; repeatable."
    ),
]
Tolerate = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerate", metavar="TAINT", help="A taint it does not mind; repeatable."
    ),
]


Group = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Its group, for --group-limit."),
]
GroupLimit = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="At most N of its group at once."),
]
Preemptible = Annotated[
    bool,
    typer.Option("--preemptible", help="May be stopped for a critical task."),
]


OnlyOn = Annotated[
    str | None,
    typer.Option(metavar="WORKER", help="The one worker that may run it."),
]
Profile = Annotated[
    bool,
    typer.Option("--profile", help="Run under a profiler; see 'corral profile'."),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", help="Run it, though its result may be known."),
]


Gpus = Annotated[
    float | None,
    typer.Option(metavar="N", min=0, help="GPUs it takes: 2, or 0.5 of one."),
]
GpuMemory = Annotated[
    int | None,
    typer.Option(metavar="MB", min=0, help="Memory it takes of each of them."),
]
GpuKind = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A kind of GPU that will do; repeatable."),
]
GpuVendor = Annotated[
    str | None, typer.Option(metavar="NAME", help="Whose GPUs will do: nvidia, amd...")
]
Cpus = Annotated[
    float | None,
    typer.Option(metavar="N", min=0.01, help="Processors it takes; a script's limit."),
]
Memory = Annotated[
    int | None,
    typer.Option(metavar="MB", min=1, help="Memory it takes; a script's limit."),
]


def resources(
    gpus: float | None,
    gpu_memory: int | None,
    gpu_kind: list[str] | None,
    gpu_vendor: str | None,
    cpus: float | None,
    memory: int | None,
) -> dict[str, Any] | None:
    """What a task takes of its node; None for one that does not say."""
    told = {
        "gpus": gpus,
        "gpu_memory_mb": gpu_memory,
        "gpu_kind": gpu_kind or None,
        "gpu_vendor": gpu_vendor,
        "cpus": cpus,
        "memory_mb": memory,
    }
    return {key: value for key, value in told.items() if value is not None} or None


def task_options(
    *,
    priority: str | None = None,
    label: list[str] | None = None,
    node_label: list[str] | None = None,
    run_after: str | None = None,
    deadline: str | None = None,
    **plain: Any,
) -> TaskOptions:
    """What was given, as the client takes it; what was not given is left out."""
    options = {
        "priority": number_or_word(priority, int),
        "labels": read_labels(label),
        "node_labels": read_labels(node_label, "--node-label"),
        "run_after": number_or_word(run_after, float),
        "deadline": number_or_word(deadline, float),
        **plain,
    }
    given = {key: value for key, value in options.items() if value is not None}
    return cast("TaskOptions", given)


def number_or_word(
    text: str | None, number: type[int] | type[float]
) -> int | float | str | None:
    """A number where it reads like one, else the text itself."""
    if text is None:
        return None
    try:
        return number(text)
    except ValueError:
        return text


def read_labels(
    pairs: list[str] | None, option: str = "--label"
) -> dict[str, str] | None:
    """`key=value` or `key:value` pairs."""
    if not pairs:
        return None
    labels = {}
    for pair in pairs:
        key, separator, value = pair.partition("=" if "=" in pair else ":")
        if not key or not separator:
            refuse(f"{pair!r} is not KEY=VALUE", option)
        labels[key] = value
    return labels


def label_pair(label: str | None) -> str | None:
    """One label as the API filters by it: `key:value`."""
    labels = read_labels([label] if label else None) or {}
    return next((f"{key}:{value}" for key, value in labels.items()), None)


def read_json(text: str | None, name: str = "JSON") -> Any:
    """The value of a `JSON | @FILE | -` argument; None when it was not given."""
    if text is None:
        return None
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        path = Path(text[1:])
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            refuse(f"cannot read {path}: {error}", name)
    return parse_json(text, name)


def parse_json(text: str, name: str, place: str = "") -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        refuse(f"{place}this is not JSON: {error}", name)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not allowed")


def refuse(message: str, name: str) -> NoReturn:
    """End with what is wrong with an argument or option."""
    raise typer.BadParameter(message, param_hint=name)


def read_ids(ids: list[str]) -> list[str]:
    """Ids in the order given; `-` stands for those on stdin."""
    if ids != ["-"]:
        return ids
    return [word for line in sys.stdin for word in line.split()]


def read_some(ids: list[str] | None, array_id: str | None) -> list[str]:
    """The ids given; either some are, or an array."""
    return read_chosen(
        ids, is_other=array_id is not None, other="an array with --array"
    )


def read_chosen(ids: list[str] | None, *, is_other: bool, other: str) -> list[str]:
    """The ids given; either some are, or the tasks were named otherwise."""
    if bool(ids) == is_other:
        refuse(f"name tasks, or {other}", "ID...")
    return read_ids(ids or [])


def task_group(
    priority: Priority = None,
    timeout: Timeout = None,
    retries: Retries = None,
    label: Labels = None,
    model: Model = None,
    run_after: RunAfter = None,
    deadline: Deadline = None,
    depends_on: DependsOn = None,
    idempotency_key: IdempotencyKey = None,
    notify: Notify = None,
    node_label: NodeLabels = None,
    tolerate: Tolerate = None,
    group: Group = None,
    group_limit: GroupLimit = None,
    preemptible: Preemptible = False,
    no_cache: NoCache = False,
    only_on: OnlyOn = None,
    profile: Profile = False,
    gpus: Gpus = None,
    gpu_memory: GpuMemory = None,
    gpu_kind: GpuKind = None,
    gpu_vendor: GpuVendor = None,
    cpus: Cpus = None,
    memory: Memory = None,
) -> TaskOptions:
    """The options of a task, for `takes`."""
    return task_options(
        priority=priority,
        timeout=timeout,
        retries=retries,
        label=label,
        model_name=model,
        run_after=run_after,
        deadline=deadline,
        depends_on=depends_on,
        idempotency_key=idempotency_key,
        notify=notify or None,
        node_label=node_label,
        tolerates=tolerate or None,
        group=group,
        group_limit=group_limit,
        preemptible=preemptible or None,
        no_cache=no_cache or None,
        only_on=only_on,
        profile="python" if profile else None,
        resources=resources(gpus, gpu_memory, gpu_kind, gpu_vendor, cpus, memory),
    )


def seconds(text: str) -> float:
    """`90`, `30m`, `2h` or `1d` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise typer.BadParameter(f"{text!r} is no time: 90, 30m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Any]:
    """Give a command all options of each group; it gets what the group makes of them.

    `@takes(task=task_options)` on `def run(ctx, *, task)` shows the parameters of
    `task_options` on the command line and calls `run` with its return value.
    """

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        own = _parameters(command, without=groups)
        parts = {name: _parameters(make) for name, make in groups.items()}
        shared = [p for part in parts.values() for p in part]

        @functools.wraps(command)
        def call(*args: Any, **given: Any) -> None:
            made = {
                name: groups[name](**{p.name: given.pop(p.name) for p in part})
                for name, part in parts.items()
            }
            command(*args, **given, **made)

        every = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY) if p in shared else p
            for p in (*own, *shared)
        ]
        every.sort(key=lambda p: p.kind)
        call.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in every} | {"return": None}
        # Typer would otherwise look through to the command itself.
        del call.__wrapped__
        return call

    return wrap


def _parameters(
    function: Callable[..., Any], without: Collection[str] = ()
) -> list[inspect.Parameter]:
    """Its parameters with real annotations, also where they are written as texts.

    One by one: the others may name what is imported for type checkers only.
    """
    found = inspect.signature(function).parameters.values()
    return [
        p.replace(annotation=_resolve(p.annotation, function))
        for p in found
        if p.name not in without
    ]


def _resolve(annotation: Any, function: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, function.__globals__)

"""What a task may be told beside its work: where it runs, with whom, who hears of it.

One value, kept in one column. Labels are the user's alone: none of them means anything
here, and those that once did are refused with the option's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

from corral.core.nodes.labels import Constraint, check_wish
from corral.core.tasks.job_type import check_name, check_text
from corral.core.tasks.needs import NOTHING, Need
from corral.core.tasks.script import JOB_TYPE
from corral.core.tasks.webhook import check_urls
from corral.errors import InvalidField

_MOST_RUNNING = 1_000_000


@dataclass(frozen=True, slots=True)
class ResultKey:
    """What is asked: `key` names it, `version` is of what would answer it.

    `model` is the catalogue's name of the model, "" where none is known.
    """

    key: str
    version: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class SpecOptions:
    """The options of a task; of most tasks those of their request, shared by all."""

    # What people ask for, in the words of POST /tasks.
    notify: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerates: tuple[str, ...] = ()
    group: str | None = None
    group_limit: int | None = None
    preemptible: bool = False
    resources: Need | None = None
    gang: str | None = None
    gang_rank: int | None = None
    gang_size: int | None = None
    no_cache: bool = False
    profile: str | None = None
    only_on: str | None = None
    """The one worker that may run it, by id."""

    # What it came with.
    name: str | None = None
    entrypoint: str | None = None
    schedule: str | None = None
    scheduled_at: str | None = None
    """What the run of a schedule was planned for; `now` for one beside the plan."""
    request_id: str = ""
    traceparent: str = ""

    # What became of it on the way in.
    question: ResultKey | None = None
    """Of a task whose result is to be kept."""
    cached_from: str | None = None
    """The task whose kept result it was answered with."""
    same_as: str | None = None
    """The task that was at the same question when this one came."""

    @property
    def constraint(self) -> Constraint | None:
        """Where it may run; None for one that may go to any untainted node."""
        if not (self.node_labels or self.tolerates):
            return None
        return _constraint(tuple(sorted(self.node_labels.items())), self.tolerates)

    @property
    def member(self) -> Gang | None:
        """Which gang it is of; None for a task on its own."""
        if self.gang is None:
            return None
        return Gang(self.gang, self.gang_rank or 0, self.gang_size or 1)

    @property
    def trace(self) -> Trace:
        """Which request it came with; nothing is empty."""
        if not self.request_id:
            return NO_TRACE
        return Trace(self.request_id, self.traceparent)


@lru_cache(maxsize=1024)
def _constraint(
    labels: tuple[tuple[str, str], ...], tolerates: tuple[str, ...]
) -> Constraint:
    return Constraint(labels, frozenset(tolerates))


@lru_cache(maxsize=1024)
def _shared(need: Need) -> Need:
    """One value for all tasks that take the same."""
    return need


NO_OPTIONS: SpecOptions = SpecOptions()


def checked(told: SpecOptions, job_type: str, model: str | None) -> SpecOptions:
    """The options as they are kept: each once, in order.

    Raises:
        InvalidField: one that cannot be, naming it.
    """
    check_urls(told.notify)
    check_wish(told.node_labels, told.tolerates)
    _check_group(told)
    _check_gang(told, model)
    _check_profile(told.profile, job_type)
    if told.only_on is not None:
        check_name(told.only_on, "only_on")
    if told.name is not None:
        check_text(told.name, "name")
    need = None if told.resources in (None, NOTHING) else told.resources
    return replace(
        told,
        notify=tuple(dict.fromkeys(told.notify)),
        tolerates=tuple(sorted(set(told.tolerates))),
        resources=_shared(need) if need else None,
        # A kept result would leave nothing to profile.
        no_cache=told.no_cache or told.profile is not None,
    )


def _check_group(told: SpecOptions) -> None:
    if told.group is None and told.group_limit is None:
        return
    check_name(told.group or "", "group")
    if told.group_limit is None or not 1 <= told.group_limit <= _MOST_RUNNING:
        raise InvalidField(
            f"group_limit must be 1 to {_MOST_RUNNING}", field="group_limit"
        )


# A gang: tasks that start together on as many nodes, or not at all.

LARGEST_GANG = 256
_PORTS = (29_500, 1_000)


@dataclass(frozen=True, slots=True)
class Gang:
    """Which gang a task is of, and which member of how many."""

    name: str
    rank: int
    size: int


def _check_gang(told: SpecOptions, model: str | None) -> None:
    name, rank, size = told.gang, told.gang_rank, told.gang_size
    if name is None and rank is None and size is None:
        return
    if model is not None:
        raise InvalidField(
            "a member of a gang loads its models itself: leave out model_name",
            field="model_name",
        )
    check_name(name or "", "gang")
    if size is None or not 1 <= size <= LARGEST_GANG:
        raise InvalidField(f"a gang has 1 to {LARGEST_GANG} members", field="gang_size")
    if rank is None or not 0 <= rank < size:
        raise InvalidField(
            f"the rank in a gang of {size} is 0 to {size - 1}", field="gang_rank"
        )


def variables(gang: Gang, address: str, attempt: int, gpus: int) -> dict[str, str]:
    """What a member is told so that it finds the others.

    `torchrun SCRIPT` reads the `PET_` ones by itself.
    """
    first, count = _PORTS
    # Another port for another attempt: the last one's may still be taken.
    port = first + (crc32(gang.name.encode()) + attempt) % count
    return {
        "CORRAL_GANG": gang.name,
        "CORRAL_RANK": str(gang.rank),
        "CORRAL_NODES": str(gang.size),
        "CORRAL_GPUS_PER_NODE": str(gpus),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "NODE_RANK": str(gang.rank),
        "NNODES": str(gang.size),
        "PET_NNODES": str(gang.size),
        "PET_NODE_RANK": str(gang.rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
        "PET_NPROC_PER_NODE": str(max(1, gpus)),
    }


# Which tasks run under a profiler.

PYTHON: Final = "python"
TORCH: Final = "torch"
MEMORY: Final = "memory"
KINDS = (PYTHON, TORCH, MEMORY)


def _check_profile(kind: str | None, job_type: str) -> None:
    if kind is None:
        return
    if kind not in KINDS:
        raise InvalidField(
            f"profile must be one of {', '.join(KINDS)}", field="profile"
        )
    if job_type == JOB_TYPE:
        raise InvalidField(
            "a command cannot be profiled from outside: have it run its own profiler "
            "and leave the report in $CORRAL_ARTIFACTS",
            field="profile",
        )


# Which request a task came with: an id that is in every log line about it.

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Trace:
    """Empty where a task came with no request."""

    request_id: str = ""
    traceparent: str = ""

    def __bool__(self) -> bool:
        return bool(self.request_id)

    def noted(self, options: SpecOptions) -> SpecOptions:
        """The options of a task that comes with it."""
        return replace(
            options, request_id=self.request_id, traceparent=self.traceparent
        )

    @property
    def headers(self) -> dict[str, str]:
        """For a request that is made for it."""
        told = {"X-Request-ID": self.request_id, "traceparent": self.traceparent}
        return {name: value for name, value in told.items() if value}


NO_TRACE = Trace()


def read_trace(request_id: str | None, traceparent: str | None) -> Trace | None:
    """What a caller said, as far as it makes sense; None when nothing does."""
    found = _PARENT.fullmatch(traceparent) if traceparent else None
    is_known = found is not None and found[1].strip("0") and found[2].strip("0")
    parent = traceparent if traceparent and is_known else ""
    if request_id and _ID.fullmatch(request_id):
        return Trace(request_id, parent)
    return Trace(parent.split("-")[1], parent) if parent else None


# Labels that once held options; refused, so that nobody believes they still do.

FORMER_LABELS: Final[Mapping[str, str]] = {
    "corral.notify": "the option notify",
    "corral.node_labels": "the option node_labels",
    "corral.tolerates": "the option tolerates",
    "corral.group": "the option group",
    "corral.group_limit": "the option group_limit",
    "corral.preemptible": "the option preemptible",
    "corral.needs": "the option resources",
    "corral.gang": "the options gang, gang_rank and gang_size",
    "corral.profile": "the option profile",
    "corral.no_cache": "the option no_cache",
    "corral.cache": "the cache_ttl of the task type",
    "corral.cached": "the field cached_from of the answer",
    "corral.same_as": "the field cached_from of the answer",
    "corral.request": "the header X-Request-ID",
    "corral.traceparent": "the header traceparent",
    "job.worker": "the option only_on",
    "job.name": "the option name",
    "job.entrypoint": "the field entrypoint of POST /submit_job",
    "schedule": "a schedule ('corral schedule add')",
    "schedule.at": "a schedule ('corral schedule add')",
}


def check_label_names(labels: Mapping[str, Any]) -> None:
    """Raises:
    InvalidField: a label that once meant something, with what does now.
    """
    if former := FORMER_LABELS.keys() & labels.keys():
        name = min(former)
        raise InvalidField(
            f"labels mean nothing to Corral: instead of the label {name!r} use "
            f"{FORMER_LABELS[name]}",
            field="labels",
        )

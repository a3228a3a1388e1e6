"""Options of a task that are labels of Corral's own: gang, profile, trace.

Its row has no column for them. Other such labels: `node_labels`, `needs`, `share`,
`webhook`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from corral.core.tasks.job_type import check_name
from corral.core.tasks.script import JOB_TYPE
from corral.errors import InvalidField

# A gang: tasks that start together on as many nodes, or not at all.

GANG = "corral.gang"
LARGEST_GANG = 256
_PORTS = (29_500, 1_000)


@dataclass(frozen=True, slots=True)
class Gang:
    """Which gang a task is of, and which member of how many."""

    name: str
    rank: int
    size: int


def gang_label(name: str | None, rank: int | None, size: int | None) -> dict[str, str]:
    """The label of a member; none for a task that is in no gang.

    Raises:
        InvalidField: a rank that no member of such a gang has.
    """
    if name is None and rank is None and size is None:
        return {}
    check_name(name or "", "gang")
    if size is None or not 1 <= size <= LARGEST_GANG:
        raise InvalidField(f"a gang has 1 to {LARGEST_GANG} members", field="gang_size")
    if rank is None or not 0 <= rank < size:
        raise InvalidField(
            f"the rank in a gang of {size} is 0 to {size - 1}", field="gang_rank"
        )
    return {GANG: f"{name}/{rank}/{size}"}


def gang_of(labels: Mapping[str, str]) -> Gang | None:
    text = labels.get(GANG) if labels else None
    if text is None:
        return None
    name, rank, size = text.rsplit("/", 2)
    return Gang(name, int(rank), int(size))


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


# Which tasks run under a profiler, and the label that says so.

PROFILE = "corral.profile"
"""The label of a task to be profiled; it holds how."""
PYTHON: Final = "python"
TORCH: Final = "torch"
MEMORY: Final = "memory"
KINDS = (PYTHON, TORCH, MEMORY)


def profile_label(kind: str | None, job_type: str) -> dict[str, str]:
    """The label for it; none for no profile.

    Raises:
        InvalidField: there is no such kind, or the task is a command.
    """
    if kind is None:
        return {}
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
    return {PROFILE: kind}


# Which request a task came with: an id that is in every log line about it.

REQUEST = "corral.request"
PARENT = "corral.traceparent"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Trace:
    """Empty where a task came with no request."""

    request_id: str = ""
    traceparent: str = ""

    def __bool__(self) -> bool:
        return bool(self.request_id)

    @property
    def labels(self) -> dict[str, str]:
        """For the task; none for what is not known."""
        told = {REQUEST: self.request_id, PARENT: self.traceparent}
        return {key: value for key, value in told.items() if value}

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


def trace_of(labels: Mapping[str, str]) -> Trace:
    request_id = labels.get(REQUEST)
    if request_id is None:
        return NO_TRACE
    return Trace(request_id, labels.get(PARENT, ""))

"""A gang: tasks that start together on as many nodes, or not at all.

Each member carries the gang's name, its rank and how many there are as a label of
Corral's own; the variables by which `torchrun` and others find each other are made
from them when all have their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from corral.core.tasks.job_type import check_name
from corral.errors import InvalidField

GANG = "corral.gang"
MOST = 256
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
    if size is None or not 1 <= size <= MOST:
        raise InvalidField(f"a gang has 1 to {MOST} members", field="gang_size")
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

"""What the agent of a node and the manager tell each other.

Cards, breakers and readings of a machine are values of `core`, which both have.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import MachineReading
from corral.core.nodes.peer import Peer
from corral.core.nodes.worker import WorkerState
from corral.wire.orders import Key
from corral.wire.value import Value


class JoinRequest(Value, frozen=True, kw_only=True):
    hostname: str
    name: str | None = None


class JoinProof(Value, frozen=True, kw_only=True):
    """By which a manager at these addresses shows that it knows a token."""

    addresses: list[str]
    proof: str


class NodeCredential(Value, frozen=True, kw_only=True):
    node_id: str
    key: str


class WorkerRecipe(Value, frozen=True, kw_only=True):
    """What every word on a worker to be has: its class, and what that is given."""

    worker_class: str
    job_types: list[str] = []
    params: dict[str, Any] = {}
    concurrency: int = 1


class DeclaredWorker(WorkerRecipe, frozen=True, kw_only=True, omit_defaults=True):
    """A worker of a node's own; `url` and `gpus` as in `core.nodes.worker`."""

    name: str
    url: str | None = None
    gpus: str = ""


class AssignedSpec(WorkerRecipe, frozen=True, kw_only=True):
    """What a supervisor is to run; `entry` is the digest of the registry's entry."""

    name: str = ""
    environment: dict[str, Any] | None = None
    entry: str | None = None
    url: str | None = None


class DesiredWorker(AssignedSpec, frozen=True, kw_only=True):
    """A worker that a node is to run.

    It starts anew where `generation` is another than the one that runs.
    """

    worker_id: str
    generation: int = 0
    gpus: str = ""
    worker_type: str | None = None


class GpuRelease(Value, frozen=True, kw_only=True):
    """The quarantine of a card that is to end, named by when it began."""

    gpu_id: str
    since: datetime


class DesiredWorkers(Value, frozen=True, kw_only=True):
    """All that a node is to run. With `leave` its agent stops; with `forget` it is no
    node any more.
    """

    version: int
    workers: list[DesiredWorker]
    leave: bool = False
    gpu_releases: list[GpuRelease] = []
    forget: bool = False


class RedisAccess(Value, frozen=True, kw_only=True):
    """What the manager grants a node: an ACL user, and maybe an address."""

    direct_url: str | None = None
    username: str | None = None
    password: str | None = None
    database: int = 0
    prefix: str = ""

    def __repr__(self) -> str:
        return f"RedisAccess({self.username!r} at {self.direct_url!r})"


class TimeLimits(Value, frozen=True, kw_only=True):
    """The manager's word on time, told at the node's registration.

    Cut off for `no_overlap_kill_s`, a worker stops what must not run twice at a time.
    An order that takes longer than `overrun_s` hands back its unstarted tasks. A model
    may take `model_load_s` to load, which is no part of its task's own time.
    """

    no_overlap_kill_s: float = 15.0
    overrun_s: float = 0.05
    model_load_s: float = 300.0


class NodeRegistration(Value, frozen=True, kw_only=True):
    """What an agent says when it starts. `machine` tells machines apart, `clock` is its
    time, in epoch seconds.
    """

    hostname: str
    version: str | None = None
    capabilities: dict[str, Any] = {}
    labels: dict[str, str] = {}
    taints: list[str] = []
    workers: list[DeclaredWorker] = []
    clock: float | None = None
    node_type: str = "worker"
    machine: str | None = None


class NodeAdmission(Value, frozen=True, kw_only=True):
    """What an agent is told that registered."""

    epoch: int
    desired: DesiredWorkers
    beat_s: float = 5.0
    fence_after_s: float = 90.0
    sample_s: float = 15.0
    engine: RedisAccess = RedisAccess()
    limits: TimeLimits = TimeLimits()


class WorkerBeat(Value, frozen=True, kw_only=True):
    """What an agent says of one worker. `age_s` is how old the worker's own word is;
    `breaker` the key of the one it waits for.
    """

    worker_id: str
    incarnation: str | None = None
    state: WorkerState
    pid: int | None = None
    error: str | None = None
    restarts: int = 0
    age_s: float = 0.0
    memory_mb: float | None = None
    held: frozenset[Key] = frozenset()
    facts: dict[str, Any] = {}
    breaker: str | None = None


class OwnerWord(Value, frozen=True, kw_only=True):
    """Whether the owner of a node uses it, and what for."""

    active: bool = False
    reason: str = ""
    drain: bool = False


class Beat(Value, frozen=True, kw_only=True):
    """All that one heartbeat says. `gpus` are None when they were not read anew;
    `breakers` are those that are not closed.
    """

    epoch: int
    seq: int = 0
    clock: float | None = None
    owner: OwnerWord | None = None
    peer: Peer | None = None
    workers: list[WorkerBeat] = []
    sample: MachineReading | None = None
    gpus: list[Gpu] | None = None
    breakers: list[BreakerReport] = []


class BeatAnswer(Value, frozen=True, kw_only=True):
    """`drop` are attempts that are no longer the node's: kill or forget them."""

    desired_version: int
    drop: list[Key] = []

"""The calls about worker types that are scaled by demand."""

from __future__ import annotations

from datetime import datetime

from corral.client.exchange import Flow, Request, get, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.value import Value, WorkerTypeInfo


class Scaled(Value, frozen=True, kw_only=True):
    """What was decided last; `event` is cluster_scaled_up or cluster_scaled_down."""

    at: datetime
    event: str
    worker_id: str
    node_id: str
    reason: str


class TypeScaling(Value, frozen=True, kw_only=True):
    """A worker type with limits; `predicted_wait_s` is None while nobody serves it."""

    worker_type: str
    job_type: str | None = None
    min_workers: int = 0
    max_workers: int = 0
    workers: int = 0
    serving: int = 0
    starting: int = 0
    leaving: int = 0
    waiting: int = 0
    predicted_wait_s: float | None = None
    blocked: str | None = None
    last: Scaled | None = None


class Scaling(Value, frozen=True, kw_only=True):
    """Whether demand decides over workers, within what, and every type it does for."""

    enabled: bool
    max_workers: int
    total_workers: int = 0
    wait_s: float
    idle_s: float
    cooldown_s: float
    types: list[TypeScaling] = []


def scaling() -> Flow[Scaling]:
    """How the worker types stand that are scaled by demand."""
    response = yield get("/cluster/scaling")
    return decode(response, Scaling)


def scale_worker_type(
    name: str, *, min_workers: int = 0, max_workers: int | None
) -> Flow[WorkerTypeInfo]:
    """Let demand decide how many workers a type has. Raises NotFound.

    Args:
        name: The worker type; it must serve a job type.
        min_workers: So many it has always; 0 lets it go without any.
        max_workers: More it never gets; None takes both limits away.
    """
    body = encode({"min_workers": min_workers, "max_workers": max_workers})
    path = f"/worker-types/{segment(name)}/scaling"
    response = yield Request("PUT", path, body=body, is_repeatable=True)
    return decode(response, WorkerTypeInfo)

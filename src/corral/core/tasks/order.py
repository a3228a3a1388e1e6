"""An order: the batch of attempts that one message carries to one worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from corral.core.tasks.task import Overlap


@dataclass(frozen=True, slots=True)
class OrderItem:
    """One attempt. `payload` and the values of `inputs` are JSON text."""

    task_id: str
    attempt: int
    job_type: str
    payload: str
    timeout_s: float | None = None
    inputs: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    overlap: Overlap = Overlap.ALLOWED
    model: str | None = None
    variables: Mapping[str, str] | None = None
    """What shows it the GPUs it was given, and the others of its gang."""
    emitted: tuple[bytes, ...] = ()
    """JSON of the pieces of output that attempts before this one have sent."""
    request_id: str = ""
    traceparent: str = ""
    profile: str = ""
    """The kind of profiler it runs under, if any."""
    edition: str = ""
    """What of its model the catalogue has now; empty where it does not say."""


@dataclass(frozen=True, slots=True)
class Order:
    """`unload` names the models that the worker drops before it begins."""

    id: str
    worker_id: str
    incarnation: str
    items: tuple[OrderItem, ...]
    unload: tuple[str, ...] = ()

"""What an agent tells a supervisor: whom to work for, and what to drop later."""

from __future__ import annotations

from typing import Any

import msgspec

from corral.worker.allowance import Code, Containers, Limits


class Spec(msgspec.Struct):
    worker_class: str
    name: str = ""
    job_types: list[str] = msgspec.field(default_factory=list)
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    concurrency: int = 1
    environment: dict[str, Any] | None = None
    entry: str | None = None
    url: str | None = None


class Assignment(msgspec.Struct):
    """The agent's first line: whom to work for, and as what."""

    worker_id: str
    node_id: str
    manager_url: str
    key: str
    epoch: int
    redis_url: str
    spec: Spec
    ca_file: str | None = None
    log_level: str = "INFO"
    log_format: str = "text"
    log_file: str | None = None
    """Where all workers of this machine say what they do, beside each one's own."""
    send_events: bool = False
    """Whether Celery's monitors, as Flower, are told of orders and of the worker."""
    code: Code = msgspec.field(default_factory=Code)
    containers: Containers = msgspec.field(default_factory=Containers)
    limits: Limits = msgspec.field(default_factory=Limits)


class Word(msgspec.Struct):
    """Any later line of the agent."""

    drop: list[tuple[str, int]] = msgspec.field(default_factory=list)
    cut_off_s: float = 0.0

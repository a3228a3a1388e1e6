"""Between rows and values.

Tasks come from either side of the store, so they are read by position, in the order of
`tasks.columns.TASK_COLUMNS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import msgspec

from corral.core.access.key import JoinGrant, Key, Scope
from corral.core.access.secret import Secret
from corral.core.nodes.node import (
    Hold,
    HoldSource,
    NodeRecord,
    NodeState,
    Sample,
    Window,
)
from corral.core.nodes.worker import WorkerRecord, WorkerSpec, WorkerState
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.app import App
from corral.core.tasks.environment import Environment, from_plain, to_plain
from corral.core.tasks.job_type import JobType, QueueOrder
from corral.core.tasks.options import NO_OPTIONS, SpecOptions
from corral.store.base import AuditRow, Event
from corral.store.text import clean, clean_or_none


def to_json(value: Any) -> str:
    """Compact and ASCII: whatever the strings inside hold can be stored."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, default=str)


def _plain(value: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


_NODE = (
    "id",
    "hostname",
    "node_type",
    "address",
    "version",
    "epoch",
    "joined_at",
    "left_at",
    "last_heartbeat",
)
_SAMPLE = tuple(field.name for field in fields(Sample))
_JOB_TYPE = tuple(f.name for f in fields(JobType) if f.name != "queue_order")
_APP = tuple(f.name for f in fields(App) if f.name != "timeouts")
_WORKER_TYPE = (
    "name",
    "worker_class",
    "job_type",
    "created_at",
    "min_workers",
    "max_workers",
    "gpus",
)
_KEY = tuple(f.name for f in fields(Key) if f.name not in ("scope", "granted"))


def node_row(node: NodeRecord) -> dict[str, Any]:
    return _plain(node, _NODE) | {
        "state": str(node.state),
        "labels": to_json(node.labels),
        "capabilities": to_json(node.capabilities),
        "set_labels": to_json(node.set_labels),
        "taints": list(node.taints),
        "set_taints": list(node.set_taints),
        "hold": to_json(_timed(node.hold)) if node.hold else None,
        "windows": to_json([_timed(window) for window in node.windows]),
    }


def _timed(value: Hold | Window) -> dict[str, Any]:
    return {
        name: at.isoformat() if isinstance(at, datetime) else at
        for name, at in asdict(value).items()
    }


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _hold_of(text: str | None) -> Hold | None:
    if not text:
        return None
    told = json.loads(text)
    times = {name: _time(told[name]) for name in ("since", "until")}
    return Hold(**{**told, **times, "source": HoldSource(told["source"])})


def _windows_of(text: str) -> tuple[Window, ...]:
    rows = json.loads(text)
    return tuple(Window(**{**r, "starts_at": _time(r["starts_at"])}) for r in rows)


def node_of(row: Mapping[str, Any]) -> NodeRecord:
    return NodeRecord(
        **{name: row[name] for name in _NODE},
        state=NodeState(row["state"]),
        labels=json.loads(row["labels"]),
        capabilities=json.loads(row["capabilities"]),
        set_labels=json.loads(row["set_labels"]),
        taints=tuple(row["taints"]),
        set_taints=tuple(row["set_taints"]),
        hold=_hold_of(row["hold"]),
        windows=_windows_of(row["windows"]),
    )


_WORKER = (
    "id",
    "node_id",
    "wanted",
    "incarnation",
    "pid",
    "restarts",
    "generation",
    "started_at",
    "last_heartbeat",
)


def worker_row(worker: WorkerRecord) -> dict[str, Any]:
    spec = worker.spec
    return _plain(worker, _WORKER) | {
        "name": spec.name,
        "worker_class": spec.worker_class,
        "job_types": list(spec.job_types),
        "params": to_json(spec.params),
        "concurrency": spec.concurrency,
        "worker_type": spec.worker_type,
        "url": spec.url,
        "environment": _environment_text(spec.environment),
        "entry": spec.entry,
        "gpus": spec.gpus,
        "state": str(worker.state),
        "error": clean_or_none(worker.error),
    }


def worker_of(row: Mapping[str, Any]) -> WorkerRecord:
    spec = WorkerSpec(
        name=row["name"],
        worker_class=row["worker_class"],
        job_types=tuple(row["job_types"]),
        params=json.loads(row["params"]),
        concurrency=row["concurrency"],
        worker_type=row["worker_type"],
        url=row["url"],
        environment=_environment_of(row["environment"]),
        entry=row["entry"],
        gpus=row["gpus"],
    )
    return WorkerRecord(
        **{name: row[name] for name in _WORKER},
        spec=spec,
        state=WorkerState(row["state"]),
        error=row["error"],
    )


def worker_type_row(worker_type: WorkerType) -> dict[str, Any]:
    return _plain(worker_type, _WORKER_TYPE) | {
        "params": to_json(worker_type.params),
        "environment": _environment_text(worker_type.environment),
        "versions": list(worker_type.versions),
    }


def worker_type_of(row: Mapping[str, Any]) -> WorkerType:
    return WorkerType(
        **{name: row[name] for name in _WORKER_TYPE},
        params=json.loads(row["params"]),
        environment=_environment_of(row["environment"]),
        versions=tuple(row["versions"]),
    )


def _environment_text(environment: Environment | None) -> str | None:
    return to_json(to_plain(environment)) if environment else None


def _environment_of(text: str | None) -> Environment | None:
    return from_plain(json.loads(text)) if text else None


def sample_row(sample: Sample) -> dict[str, Any]:
    return _plain(sample, _SAMPLE)


def sample_of(row: Mapping[str, Any]) -> Sample:
    return Sample(**{name: row[name] for name in _SAMPLE})


def job_type_row(job_type: JobType) -> dict[str, Any]:
    return _plain(job_type, _JOB_TYPE) | {"queue_order": str(job_type.queue_order)}


def job_type_of(row: Mapping[str, Any]) -> JobType:
    return JobType(
        **{name: row[name] for name in _JOB_TYPE},
        queue_order=QueueOrder(row["queue_order"]),
    )


def app_row(app: App) -> dict[str, Any]:
    return _plain(app, _APP) | {"timeouts": to_json(dict(app.timeouts))}


def app_of(row: Mapping[str, Any]) -> App:
    return App(
        **{name: row[name] for name in _APP}, timeouts=json.loads(row["timeouts"])
    )


def key_row(key: Key) -> dict[str, Any]:
    granted = None if key.granted is None else to_json(asdict(key.granted))
    return _plain(key, _KEY) | {"scope": str(key.scope), "granted": granted}


def key_of(row: Mapping[str, Any]) -> Key:
    told = row["granted"]
    return Key(
        **{name: row[name] for name in _KEY},
        scope=Scope(row["scope"]),
        granted=None if told is None else msgspec.json.decode(told, type=JoinGrant),
    )


def event_row(event: Event) -> dict[str, Any]:
    return {
        "at": event.at,
        "event_type": clean(event.event_type),
        "severity": clean(event.severity),
        "source_node_id": clean_or_none(event.source_node_id),
        "title": clean(event.title),
        "description": clean(event.description),
        "data": to_json(event.data),
        "task_ids": [clean(task_id) for task_id in event.task_ids] or None,
    }


def event_of(row: Mapping[str, Any]) -> Event:
    return Event(
        event_type=row["event_type"],
        title=row["title"],
        severity=row["severity"],
        source_node_id=row["source_node_id"],
        description=row["description"],
        data=json.loads(row["data"]),
        task_ids=tuple(row["task_ids"] or ()),
        at=row["at"],
        seq=row["seq"],
        acknowledged_at=row.get("acknowledged_at"),
        acknowledged_by=row.get("acknowledged_by"),
        resolved_at=row.get("resolved_at"),
    )


def secret_row(secret: Secret) -> dict[str, Any]:
    return {
        "name": secret.name,
        "sealed": secret.sealed,
        "job_types": list(secret.job_types),
        "created_at": secret.created_at,
        "updated_at": secret.updated_at,
        "keys": list(secret.keys),
        "node_labels": to_json(dict(secret.node_labels)),
    }


def secret_of(row: Mapping[str, Any]) -> Secret:
    return Secret(
        row["name"],
        row["sealed"],
        tuple(row["job_types"]),
        row["created_at"],
        row["updated_at"],
        tuple(row["keys"]),
        json.loads(row["node_labels"]),
    )


def audit_row(row: AuditRow) -> dict[str, Any]:
    return {
        "at": row.at,
        "actor": clean(row.actor),
        "action": clean(row.action),
        "target": clean(row.target),
        "allowed": row.allowed,
        "ip": clean(row.ip),
        "request_id": clean(row.request_id),
        "data": to_json(row.data),
    }


def audit_of(row: Mapping[str, Any]) -> AuditRow:
    return AuditRow(
        at=row["at"],
        actor=row["actor"],
        action=row["action"],
        target=row["target"],
        allowed=row["allowed"],
        ip=row["ip"],
        request_id=row["request_id"],
        data=json.loads(row["data"]),
        seq=row["seq"],
    )


_USUAL_OPTIONS: dict[str, Any] = msgspec.to_builtins(NO_OPTIONS)
_decode_options = msgspec.json.Decoder(SpecOptions).decode


def plain_options(options: SpecOptions) -> dict[str, Any]:
    """Those that are not the usual ones, as plain JSON values."""
    told: dict[str, Any] = msgspec.to_builtins(options)
    return {
        name: value for name, value in told.items() if value != _USUAL_OPTIONS[name]
    }


def options_text(options: SpecOptions) -> str | None:
    """As the column has them; None for a task that has none."""
    told = plain_options(options)
    return msgspec.json.encode(told).decode() if told else None


def option_text(name: str, value: str) -> str:
    """What stands in that text when an option has this value, and only then: in a
    text of JSON no string has quotes that are not escaped.
    """
    return msgspec.json.encode({name: value}).decode()[1:-1]


def read_options(text: str | None) -> SpecOptions:
    return NO_OPTIONS if text is None else _decode_options(text)

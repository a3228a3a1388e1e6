"""Options of tasks in a column of their own; until here labels held them."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_BATCH = 5000
_TEXTS = {
    "corral.group": "group",
    "corral.profile": "profile",
    "corral.cached": "cached_from",
    "corral.same_as": "same_as",
    "corral.request": "request_id",
    "corral.traceparent": "traceparent",
    "job.worker": "only_on",
    "job.name": "name",
    "job.entrypoint": "entrypoint",
    "schedule": "schedule",
    "schedule.at": "scheduled_at",
}
_AMOUNTS = {
    "cpus": "cpu_milli",
    "memory": "memory_mb",
    "share": "share",
    "gpus": "gpus",
    "gpu_memory": "gpu_mb",
}
_FOUND = """
select id, seq, labels from tasks
where seq > :seq and exists (select from unnest(labels) as label
    where starts_with(label, '["corral.') or starts_with(label, '["job.')
        or starts_with(label, '["schedule"') or starts_with(label, '["schedule.at"'))
order by seq limit :most
"""
# Labels travel as array literals: unnest would flatten arrays of arrays.
_CHANGED = """
update tasks t set options = c.options, labels = c.labels::text[]
from unnest(:ids, :options, :labels) as c(id, options, labels) where t.id = c.id
"""


def upgrade() -> None:
    op.execute("alter table tasks add column options text")
    _move_tasks(op.get_bind())
    _move_schedules(op.get_bind())


def downgrade() -> None:
    raise NotImplementedError("restore a backup from before the upgrade instead")


def _move_tasks(connection: sa.Connection) -> None:
    texts = sa.ARRAY(sa.Text)
    names = ("ids", "options", "labels")
    change = sa.text(_CHANGED).bindparams(
        *(sa.bindparam(n, type_=texts) for n in names)
    )
    seq = 0
    while True:
        asked = {"seq": seq, "most": _BATCH}
        rows = connection.execute(sa.text(_FOUND), asked).all()
        if not rows:
            return
        seq = rows[-1].seq
        parted = [part(dict(map(json.loads, row.labels))) for row in rows]
        told = {
            "ids": [row.id for row in rows],
            "options": [_text(options) for options, _ in parted],
            "labels": [_literal(labels) for _, labels in parted],
        }
        connection.execute(change, told)


def _move_schedules(connection: sa.Connection) -> None:
    change = sa.text("update schedules set task = :task where name = :name")
    for row in connection.execute(sa.text("select name, task from schedules")).all():
        task = json.loads(row.task)
        task["options"], task["labels"] = part(task["labels"])
        connection.execute(change, {"name": row.name, "task": json.dumps(task)})


def part(labels: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options that stood among labels, and the labels that are left."""
    options: dict[str, Any] = {}
    left: dict[str, str] = {}
    for name, text in labels.items():
        if name in _TEXTS:
            options[_TEXTS[name]] = text
        elif name in _READERS:
            options |= _READERS[name](text)
        else:
            left[name] = text
    return options, left


def _need(text: str) -> dict[str, Any]:
    parts = dict(word.split("=", 1) for word in text.split(";") if word)
    need: dict[str, Any] = {
        new: int(parts.get(old, 0)) for old, new in _AMOUNTS.items()
    }
    need["kinds"] = parts["kind"].split("|") if parts.get("kind") else []
    need["vendor"] = parts.get("vendor", "")
    return {"resources": need}


def _gang(text: str) -> dict[str, Any]:
    name, rank, size = text.rsplit("/", 2)
    return {"gang": name, "gang_rank": int(rank), "gang_size": int(size)}


def _question(text: str) -> dict[str, Any]:
    key, version, model = text.split(" ", 2)
    return {"question": {"key": key, "version": version, "model": model}}


_READERS = {
    "corral.notify": lambda text: {"notify": text.split()},
    "corral.node_labels": lambda text: {
        "node_labels": dict(pair.split("=", 1) for pair in text.split(",") if pair)
    },
    "corral.tolerates": lambda text: {"tolerates": text.split(",")},
    "corral.group_limit": lambda text: {"group_limit": int(text)},
    "corral.preemptible": lambda text: {"preemptible": True},
    "corral.no_cache": lambda text: {"no_cache": True},
    "corral.needs": _need,
    "corral.gang": _gang,
    "corral.cache": _question,
}


def _text(options: dict[str, Any]) -> str | None:
    if not options:
        return None
    return json.dumps(options, separators=(",", ":"), ensure_ascii=False)


def _literal(labels: dict[str, str]) -> str | None:
    if not labels:
        return None
    pairs = (json.dumps(pair) for pair in sorted(labels.items()))
    quoted = (pair.replace("\\", "\\\\").replace('"', '\\"') for pair in pairs)
    return "{" + ",".join(f'"{pair}"' for pair in quoted) + "}"

"""What one who listens wants to hear, and how that is put."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from corral.manager.events.ring import ClusterFact, Entry, TaskChange, TaskChanges, told

TASKS_CHANGED = "tasks_changed"
LISTED = 100
"""So many tasks stand in a summary; all of them are counted."""


class Detail(StrEnum):
    ALL = "all"
    SUMMARY = "summary"


class EventFormat(StrEnum):
    """How events are put into frames."""

    MESSAGE = "message"
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events; empty for all. An event must be of all that is named."""

    types: frozenset[str] = frozenset()
    task_id: str | None = None
    task_type: str | None = None
    node_id: str | None = None
    worker_id: str | None = None
    labels: frozenset[tuple[str, str]] = frozenset()
    detail: Detail = Detail.ALL

    @property
    def is_all(self) -> bool:
        return self == EventFilter(detail=self.detail)

    def texts(self, entries: Sequence[Entry]) -> Iterator[tuple[int, bytes]]:
        """(number, JSON) of the events among these."""
        for entry in entries:
            if isinstance(entry, ClusterFact):
                if self._wants_fact(entry):
                    yield entry.last, entry.text
                continue
            chosen = self._chosen(entry)
            if chosen and self.detail is Detail.SUMMARY:
                yield chosen[-1].number, _summary(chosen)
            else:
                for change in chosen:
                    yield change.number, change.text

    def _wants_fact(self, fact: ClusterFact) -> bool:
        return (
            (not self.types or fact.event in self.types)
            and (self.task_id is None or self.task_id in fact.task_ids)
            and self.task_type in (None, fact.task_type)
            and self.node_id in (None, fact.node_id)
            and self.worker_id in (None, fact.worker_id)
            and not self.labels
        )

    def _chosen(self, batch: TaskChanges) -> list[TaskChange]:
        if self.is_all:
            return batch.changes
        named = self.task_id
        changes = batch.changes if named is None else batch.of_task(named)
        types = self.types
        if self.detail is Detail.SUMMARY and TASKS_CHANGED in types:
            types = frozenset()
        return [
            change
            for change in changes
            if (not types or change.event in types)
            and self.task_type in (None, change.task_type)
            and self.node_id in (None, change.node_id)
            and self.worker_id in (None, change.worker_id)
            and (not self.labels or self.labels <= change.labels.items())
        ]


def _summary(changes: Sequence[TaskChange]) -> bytes:
    """Many changes as one event: all counted, the last of each task told."""
    latest = {change.task_id: change for change in changes}
    by_type: dict[str, Counter[str]] = {}
    for change in changes:
        by_type.setdefault(change.task_type, Counter())[change.event] += 1
    tasks = [
        {
            "task_id": change.task_id,
            "task_type": change.task_type,
            "event": change.event,
            "status": change.status,
            **({"progress": p} if (p := change.more.get("progress")) else {}),
        }
        for change in list(latest.values())[-LISTED:]
    ]
    data = {
        "count": len(changes),
        "events": Counter(change.event for change in changes),
        "by_type": by_type,
        "tasks": tasks,
        "more": len(latest) - len(tasks),
    }
    last = changes[-1]
    return told(TASKS_CHANGED, last.at, last.number, data)


def frame(
    face: EventFormat, texts: Sequence[tuple[int, bytes]], at: datetime
) -> tuple[str, ...] | tuple[bytes, ...]:
    """Events as they travel: text for sockets, bytes for streams."""
    if face is EventFormat.STREAM:
        return (b"".join(b"id: %d\ndata: %b\n\n" % row for row in texts),)
    if face is EventFormat.MESSAGE or len(texts) == 1:
        return tuple(text.decode() for _, text in texts)
    rows = [msgspec.Raw(text) for _, text in texts]
    return (told("batch", at, texts[-1][0], rows).decode(),)

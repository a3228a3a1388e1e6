"""What happened lately, numbered, in memory only: so many events, so many bytes.

Numbers only grow, also from one manager to the next: they begin with the time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

_encode = msgspec.json.Encoder(enc_hook=str).encode
_COST = 256
"""About what an event takes beside its text."""


@dataclass(slots=True)
class TaskChange:
    """Something happened to a task; `number` is its place among all events."""

    event: str
    task_id: str
    task_type: str
    status: str
    attempt: int
    at: datetime
    worker_id: str | None = None
    node_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    _text: bytes = b""

    @property
    def text(self) -> bytes:
        """The event as JSON, made once however many are told."""
        if not self._text:
            data = {
                "task_id": self.task_id,
                "task_type": self.task_type,
                "status": self.status,
                "attempt": self.attempt,
                "worker_id": self.worker_id,
                "node_id": self.node_id,
                **self.more,
            }
            self._text = told(self.event, self.at, self.number, data)
        return self._text


@dataclass(slots=True)
class TaskChanges:
    """Changes of tasks with nothing else between them."""

    changes: list[TaskChange] = field(default_factory=list)
    _by_task: dict[str, list[TaskChange]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return self.changes[-1].number

    def of_task(self, task_id: str) -> list[TaskChange]:
        """Those of one task: many may ask, each for another."""
        if not self._by_task:
            for change in self.changes:
                self._by_task.setdefault(change.task_id, []).append(change)
        return self._by_task.get(task_id, [])

    def forget_index(self) -> None:
        self._by_task = {}

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def size(self) -> int:
        return _COST * 2 * len(self.changes)


@dataclass(slots=True)
class ClusterFact:
    """Anything else that happened."""

    event: str
    at: datetime
    data: Mapping[str, Any]
    node_id: str | None = None
    worker_id: str | None = None
    task_ids: tuple[str, ...] = ()
    task_type: str | None = None
    last: int = 0
    text: bytes = b""

    def __len__(self) -> int:
        return 1

    @property
    def size(self) -> int:
        return _COST + len(self.text)


Entry = TaskChanges | ClusterFact


def told(event: str, at: datetime, number: int | None, data: Any) -> bytes:
    """An event as everybody reads it."""
    whole = {"event": event, "timestamp": at, "seq": number, "data": data}
    try:
        return _encode(whole)
    except UnicodeEncodeError:  # somebody's words are no text
        return json.dumps(whole, default=str).encode()


class EventRing:
    """The last events; the oldest go when there are too many, or they are too large."""

    def __init__(self, first: int, events: int, limit: int) -> None:
        self._entries: deque[Entry] = deque()
        self._most = events
        self._limit = limit
        self._count = self._size = 0
        self._is_open = False
        self._handed = first
        self.last = first
        """The number of the newest event."""
        self.base = first
        """Everything after this number is here."""

    def add(self, fact: ClusterFact) -> None:
        self.last += 1
        fact.last = self.last
        fact.text = told(fact.event, fact.at, fact.last, fact.data)
        self._is_open = False
        self._append(fact)

    def change(self, changes: list[TaskChange]) -> None:
        for change in changes:
            self.last += 1
            change.number = self.last
        tail = self._entries[-1] if self._entries else None
        if self._is_open and isinstance(tail, TaskChanges):
            tail.changes += changes
            tail.forget_index()
            self._grow(len(changes), _COST * 2 * len(changes))
        elif changes:
            self._is_open = True
            self._append(TaskChanges(list(changes)))

    def close(self) -> None:
        """All of it has been handed out, and what comes from now on stands apart."""
        self._is_open = False
        self._handed = self.last
        self._trim()

    def clear(self) -> None:
        """Forget everything; those who have seen it have missed what follows."""
        self._entries.clear()
        self._count = self._size = 0
        self._is_open = False
        self.last += 1
        self.base = self.last

    def has(self, after: int) -> bool:
        """Is everything after this number here?"""
        return self.base <= after <= self.last

    def since(self, after: int) -> Iterator[Entry]:
        """Oldest first; of a batch that was seen in part, the rest."""
        fresh: list[Entry] = []
        for entry in reversed(self._entries):
            if entry.last <= after:
                break
            if isinstance(entry, TaskChanges) and entry.changes[0].number <= after:
                entry = TaskChanges([c for c in entry.changes if c.number > after])
            fresh.append(entry)
        return reversed(fresh)

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._grow(len(entry), entry.size)

    def _grow(self, count: int, size: int) -> None:
        self._count += count
        self._size += size
        self._trim()

    def _trim(self) -> None:
        """Forget the oldest, but nothing that has not been handed out."""
        while (self._count > self._most or self._size > self._limit) and (
            self._entries and self._entries[0].last <= self._handed
        ):
            gone = self._entries.popleft()
            self._count -= len(gone)
            self._size -= gone.size
            self.base = gone.last

"""Makes events of what is written to the store, when somebody listens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from corral.core.insight.event import ALERT, Event
from corral.core.tasks.outcome import Settlement
from corral.core.tasks.task import State, Task
from corral.manager.context import ManagerContext
from corral.manager.events.broadcast import Broadcast
from corral.manager.events.ring import ClusterFact, TaskChange
from corral.manager.signals import (
    EventsAdded,
    NameChanged,
    TaskRequeued,
    TasksInserted,
    TasksPlaced,
    TasksSettled,
    TasksStarted,
    Written,
)
from corral.store.base import Inserted, Placement

_ENDS = {
    State.COMPLETED: "task_completed",
    State.FAILED: "task_failed",
    State.ERROR: "task_failed",
    State.TIMED_OUT: "task_failed",
    State.CANCELLED: "task_cancelled",
    State.QUEUED: "task_retried",
}
_GPU_TROUBLE = frozenset({"gpu_removed", "gpu_failed", "gpu_quarantined"})
_GPU_RULE = "gpu_"
_MESSAGE = 500


class TaskEvents:
    """Hears of every write that people would want to know of.

    It is told after the write and before memory follows: tasks that have just ended
    are still found.
    """

    def __init__(self, ctx: ManagerContext, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        self._clock = ctx.clock
        self._tasks = ctx.cluster.tasks
        self.ended: Counter[str] = Counter()
        """Tasks that ended while somebody listened, by what is told of them."""
        ctx.signals.written.listen(self.hear)

    def hear(self, written: Written) -> None:
        """A write is through."""
        if not self._broadcast.is_awake:
            return
        match written:
            case TasksInserted(tasks, inserted):
                self._inserted(tasks, inserted)
            case TasksPlaced(placements, at, given):
                self._placed(placements, at, given)
            case TasksStarted(started, changed):
                self._started(started, changed)
            case TasksSettled(settlements, applied):
                self._settled(settlements, applied)
            case TaskRequeued(task):
                changes = self._arrived("task_requeued", task)
                self._broadcast.tell_changes(list(changes))
            case EventsAdded(events):
                self._happened(events)
            case NameChanged():
                self._changed(written)

    # tasks ---------------------------------------------------------------------
    def _inserted(self, tasks: Sequence[Task], inserted: Inserted) -> None:
        self._broadcast.tell_changes(
            [
                change
                for task in tasks
                if task.id in inserted.created
                for change in self._arrived("task_submitted", task)
            ]
        )

    def _arrived(self, event: str, task: Task) -> Iterator[TaskChange]:
        at = self._clock.now()
        yield _change(event, task, State.QUEUED, task.attempt, at)
        if task.is_terminal:
            yield self._ended(task, task.state, at, {})
        elif task.state is State.ASSIGNED:
            yield _change("task_assigned", task, task.state, task.attempt, at)

    def _placed(
        self,
        placements: Sequence[Placement],
        now: datetime,
        given: Mapping[str, str],
    ) -> None:
        changes = []
        for place in placements:
            if place.task_id in given and (task := self._tasks.get(place.task_id)):
                change = _change(
                    "task_assigned", task, State.ASSIGNED, place.attempt, now
                )
                change.worker_id, change.node_id = place.worker_id, place.node_id
                changes.append(change)
        self._broadcast.tell_changes(changes)

    def _started(
        self, started: Sequence[tuple[str, int, datetime]], changed: set[str]
    ) -> None:
        self._broadcast.tell_changes(
            [
                _change("task_started", task, State.RUNNING, attempt, at)
                for task_id, attempt, at in started
                if task_id in changed and (task := self._tasks.get(task_id))
            ]
        )

    def _settled(self, settlements: Sequence[Settlement], applied: set[str]) -> None:
        self._broadcast.tell_changes(
            [
                self._ended(task, row.state, row.finished_at, _outcome(row))
                for row in settlements
                if row.task_id in applied and (task := self._tasks.get(row.task_id))
            ]
        )

    def _ended(
        self, task: Task, state: State, at: datetime, more: Mapping[str, Any]
    ) -> TaskChange:
        event = _ENDS[state]
        self.ended[event] += 1
        return _change(event, task, state, task.attempt, at, more)

    # the rest ------------------------------------------------------------------
    def _happened(self, events: Sequence[Event]) -> None:
        for event in events:
            fact = _fact(event, event.event_type, event.at or self._clock.now())
            self._broadcast.tell(fact)
            if _is_gpu_trouble(event):
                self._broadcast.tell(_fact(event, "gpu_alert", fact.at))

    def _changed(self, change: NameChanged) -> None:
        data = {"name": change.name, "is_removed": change.is_removed}
        is_type = change.event == "job_type_changed"
        task_type = change.name if is_type else None
        fact = ClusterFact(change.event, self._clock.now(), data, task_type=task_type)
        self._broadcast.tell(fact)


def _change(
    event: str,
    task: Task,
    state: State,
    attempt: int,
    at: datetime,
    more: Mapping[str, Any] | None = None,
) -> TaskChange:
    spec = task.spec
    if spec.model is not None:
        more = {"model_name": spec.model, **(more or {})}
    return TaskChange(
        event,
        spec.id,
        spec.job_type,
        # The documents know no `assigned`: such a task still counts as queued.
        "queued" if state is State.ASSIGNED else str(state),
        attempt,
        at,
        task.worker_id,
        task.node_id,
        spec.labels,
        more or {},
    )


def _outcome(row: Settlement) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if row.error is not None:
        told["error"] = {
            "kind": row.error.kind,
            "message": row.error.message[:_MESSAGE],
        }
    if row.started_at is not None:
        took_s = (row.finished_at - row.started_at).total_seconds()
        told["duration"] = round(max(took_s, 0.0), 6)
    return told


def _fact(event: Event, name: str, at: datetime) -> ClusterFact:
    data = {
        "title": event.title,
        "severity": event.severity,
        "node_id": event.source_node_id,
        "description": event.description,
        "task_ids": list(event.task_ids),
        **event.data,
    }
    worker_id = event.data.get("worker_id")
    tasks = tuple(event.task_ids)
    return ClusterFact(name, at, data, event.source_node_id, worker_id, tasks)


def _is_gpu_trouble(event: Event) -> bool:
    is_alert = event.event_type in (ALERT, "alert_worsened")
    is_of_gpu = str(event.data.get("rule", "")).startswith(_GPU_RULE)
    return event.event_type in _GPU_TROUBLE or (is_alert and is_of_gpu)

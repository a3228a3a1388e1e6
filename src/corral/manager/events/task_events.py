"""Makes events of what is written to the store, when somebody listens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from corral.core.tasks.retry import Settlement
from corral.core.tasks.task import State, Task
from corral.core.tasks.webhook import public
from corral.manager.clock import Clock
from corral.manager.events.broadcast import Broadcast
from corral.manager.events.ring import ClusterFact, TaskChange
from corral.store.base import Inserted, Placement
from corral.store.events import ALERT, Event

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
# What a call saves or deletes, and the event that tells of it.
_SAVED = {
    "save_job_type": "job_type_changed",
    "save_worker_type": "worker_type_changed",
    "save_schedule": "schedule_changed",
    "save_catalogue_model": "model_changed",
}
_DELETED = {
    "delete_job_type": "job_type_changed",
    "delete_worker_type": "worker_type_changed",
    "delete_schedule": "schedule_changed",
    "delete_catalogue_model": "model_changed",
}
Find = Callable[[str], Task | None]


class TaskEvents:
    """Hears every call of the store that people would want to know of.

    It is told after the write and before memory follows: tasks that have just ended
    are still found.
    """

    def __init__(self, broadcast: Broadcast, clock: Clock) -> None:
        self._broadcast = broadcast
        self._clock = clock
        self.find: Find = lambda task_id: None
        self.ended: Counter[str] = Counter()
        """Tasks that ended while somebody listened, by what is told of them."""
        self._ways: dict[str, Callable[..., None]] = {
            "insert_tasks": self._inserted,
            "place_tasks": self._placed,
            "start_tasks": self._started,
            "settle_tasks": self._settled,
            "requeue_task": self._requeued,
            "add_events": self._happened,
        }

    @property
    def names(self) -> frozenset[str]:
        """The calls to be told of."""
        return frozenset({*self._ways, *_SAVED, *_DELETED})

    def hear(self, name: str, args: Sequence[Any], answer: Any) -> None:
        """A call was carried out."""
        if not self._broadcast.is_awake:
            return
        if (way := self._ways.get(name)) is not None:
            way(*args, answer)
        elif name in _SAVED:
            self._changed(_SAVED[name], args[0].name, is_removed=False)
        else:
            self._changed(_DELETED[name], args[0], is_removed=True)

    # tasks ---------------------------------------------------------------------
    def _inserted(self, term: int, tasks: Sequence[Task], answer: Inserted) -> None:
        self._broadcast.tell_changes(
            [
                change
                for task in tasks
                if task.id in answer.created
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
        term: int,
        placements: Sequence[Placement],
        now: datetime,
        answer: Mapping[str, str],
    ) -> None:
        changes = []
        for place in placements:
            if place.task_id in answer and (task := self.find(place.task_id)):
                change = _change(
                    "task_assigned", task, State.ASSIGNED, place.attempt, now
                )
                change.worker_id, change.node_id = place.worker_id, place.node_id
                changes.append(change)
        self._broadcast.tell_changes(changes)

    def _started(
        self, term: int, started: Sequence[tuple[str, int, datetime]], answer: set[str]
    ) -> None:
        self._broadcast.tell_changes(
            [
                _change("task_started", task, State.RUNNING, attempt, at)
                for task_id, attempt, at in started
                if task_id in answer and (task := self.find(task_id))
            ]
        )

    def _settled(
        self, term: int, settlements: Sequence[Settlement], answer: set[str]
    ) -> None:
        self._broadcast.tell_changes(
            [
                self._ended(task, row.state, row.finished_at, _outcome(row))
                for row in settlements
                if row.task_id in answer and (task := self.find(row.task_id))
            ]
        )

    def _ended(
        self, task: Task, state: State, at: datetime, more: Mapping[str, Any]
    ) -> TaskChange:
        event = _ENDS[state]
        self.ended[event] += 1
        return _change(event, task, state, task.attempt, at, more)

    def _requeued(
        self, term: int, task_id: str, now: datetime, answer: Task | None
    ) -> None:
        if answer is not None:
            self._broadcast.tell_changes(list(self._arrived("task_requeued", answer)))

    # the rest ------------------------------------------------------------------
    def _happened(self, events: Sequence[Event], answer: None) -> None:
        for event in events:
            fact = _fact(event, event.event_type, event.at or self._clock.now())
            self._broadcast.tell(fact)
            if _is_gpu_trouble(event):
                self._broadcast.tell(_fact(event, "gpu_alert", fact.at))

    def _changed(self, event: str, name: str, *, is_removed: bool) -> None:
        data = {"name": name, "is_removed": is_removed}
        task_type = name if event == "job_type_changed" else None
        now = self._clock.now()
        self._broadcast.tell(ClusterFact(event, now, data, task_type=task_type))


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
        public(spec.labels),
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
    return ClusterFact(name, at, data, event.source_node_id, worker_id, event.task_ids)


def _is_gpu_trouble(event: Event) -> bool:
    is_alert = event.event_type in (ALERT, "alert_worsened")
    is_of_gpu = str(event.data.get("rule", "")).startswith(_GPU_RULE)
    return event.event_type in _GPU_TROUBLE or (is_alert and is_of_gpu)

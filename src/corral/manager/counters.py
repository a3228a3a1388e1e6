"""What the manager counts while it works, for `/metrics`.

Every task passes here, so a figure costs an addition or two; `manager/prometheus.py`
says how to add one. What can be looked up when somebody asks is in the `gauges` of the
features.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.outcome import Outcome, Settlement
from corral.core.tasks.task import TERMINAL, State, Task, TaskSpec
from corral.manager.prometheus import (
    MICROSECONDS,
    STATEMENT,
    Counter,
    Histogram,
    MetricFamily,
)


def _ended() -> Counter:
    counter = Counter("tasks_total", "Tasks that ended, by how.", ("status",))
    for state in sorted(TERMINAL):
        counter.add(state, count=0)
    return counter


def _loads() -> Counter:
    text = "Models that were loaded into memory."
    return Counter("corral_model_loads_total", text, ("model",))


@dataclass(frozen=True, slots=True)
class Counters:
    """One for a manager; all of it begins at zero with every start."""

    ended: Counter = field(default_factory=_ended)
    run: Histogram = field(
        default_factory=lambda: Histogram(
            "task_duration_seconds",
            "How long attempts ran that were started.",
            ("task_type",),
        )
    )
    wait: Histogram = field(
        default_factory=lambda: Histogram(
            "corral_task_wait_seconds",
            "From submit, or the time a task may run after, to its first start.",
            ("task_type",),
        )
    )
    submitted: Counter = field(
        default_factory=lambda: Counter(
            "corral_tasks_submitted_total", "Tasks that were accepted.", ("task_type",)
        )
    )
    retries: Counter = field(
        default_factory=lambda: Counter(
            "corral_task_retries_total",
            "Attempts after which a task went back to its queue.",
            ("reason",),
        )
    )
    dead: Counter = field(
        default_factory=lambda: Counter(
            "corral_dead_letters_total",
            "Tasks that became dead letters.",
            ("reason",),
            50,
        )
    )
    cycle: Histogram = field(
        default_factory=lambda: Histogram(
            "corral_scheduler_cycle_seconds",
            "How long the scheduler took to look at what waits.",
            buckets=MICROSECONDS,
        )
    )
    decision: Histogram = field(
        default_factory=lambda: Histogram(
            "corral_scheduler_decision_seconds",
            "The same for each task that was given to a worker.",
            buckets=MICROSECONDS,
        )
    )
    store: Histogram = field(
        default_factory=lambda: Histogram(
            "corral_store_seconds",
            "How long statements took in the database.",
            ("connection",),
            buckets=STATEMENT,
        )
    )
    loads: Counter = field(default_factory=_loads)
    load: Histogram = field(
        default_factory=lambda: Histogram(
            "corral_model_load_seconds", "How long a model took to load.", ("model",)
        )
    )
    hits: Counter = field(
        default_factory=lambda: Counter(
            "corral_model_hits_total",
            "Tasks that found their model in memory.",
            ("model",),
        )
    )
    traces_sent: Counter = field(
        default_factory=lambda: Counter(
            "corral_traces_sent_total",
            "Ended attempts whose spans the trace collector has.",
        )
    )
    traces_dropped: Counter = field(
        default_factory=lambda: Counter(
            "corral_traces_dropped_total",
            "Ended attempts whose spans were dropped: too many waited, or refused.",
            ("reason",),
        )
    )

    def families(self) -> Iterator[MetricFamily]:
        for name in self.__slots__:
            yield getattr(self, name)

    def accept(self, tasks: Sequence[Task]) -> None:
        """Tasks were stored; those answered from kept results have ended."""
        for kind, count in Tally(task.spec.job_type for task in tasks).items():
            if kind not in OWN_TYPES:
                self.submitted.add(kind, count=count)
        for task in tasks:
            if task.finished_at is not None:
                self.ended.add(task.state)

    def settle(self, settled: Iterable[tuple[Task, Settlement]]) -> None:
        """Attempts of tasks ended, and the store has that."""
        ended: dict[State, int] = {}
        for task, row in settled:
            kind = task.spec.job_type
            if kind in OWN_TYPES:
                continue
            if task.attempt == 1 and (began := row.started_at or task.started_at):
                self.wait.add(_waited_s(task, began), kind)
            if row.state is State.QUEUED:
                self.retries.add(row.outcome)
                continue
            ended[row.state] = ended.get(row.state, 0) + 1
            if row.dead_letter is not None:
                self.dead.add(row.dead_letter)
        for state, count in ended.items():
            self.ended.add(state, count=count)

    def ran(
        self, worked: Iterable[tuple[Task, Outcome]], changed: Container[str]
    ) -> None:
        """The attempts of these outcomes were at work, where the store took them."""
        for task, outcome in worked:
            kind = task.spec.job_type
            if outcome.task_id in changed and kind not in OWN_TYPES:
                self.run.add(outcome.duration_s, kind)

    def plan(self, took_s: float, placed: int) -> None:
        self.cycle.add(took_s)
        if placed:
            self.decision.add(took_s / placed)

    def use_model(self, spec: TaskSpec, outcome: Outcome) -> None:
        """An attempt that needs a model has ended."""
        model = spec.model or ""
        if outcome.load_s:
            self.loads.add(model)
            self.load.add(outcome.load_s, model)
        elif outcome.started_at is not None and spec.job_type not in OWN_TYPES:
            self.hits.add(model)


def _waited_s(task: Task, began: datetime) -> float:
    since, after = task.created_at, task.spec.run_after
    if after is not None and after > since:
        since = after
    return max(0.0, (began - since).total_seconds())

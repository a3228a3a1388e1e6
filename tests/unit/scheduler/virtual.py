"""A cluster in virtual time: two equal schedulers, workers that take what they take.

It holds whatever it is asked to run to the rules that no plan may break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from corral.core.access.share import Share
from corral.scheduler.events import (
    AttemptEnded,
    OrderClosed,
    SchedulerEvent,
    ShareSet,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.scheduler import Policy, Scheduler
from corral.scheduler.world.line import CRITICAL

START = 1_000_000.0
POLICY = Policy(order_max_tasks=1)


@dataclass(frozen=True, slots=True)
class Job:
    """A task to come: when, and how long it takes."""

    at: float
    job_type: str
    run_s: float
    priority: int = 0
    owner: str = ""
    group: str | None = None
    group_limit: int = 0
    deadline_s: float | None = None


@dataclass(slots=True)
class Virtual:
    workers: dict[str, frozenset[str]]
    policy: Policy = POLICY
    now: float = START
    jobs: dict[str, Job] = field(default_factory=dict)
    waiting: dict[str, WaitingTask] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    """By task, its worker."""
    started: dict[str, float] = field(default_factory=dict)
    expired: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    """How often a task of lower priority of its type went before it."""
    most: dict[str, int] = field(default_factory=dict)
    gpu_s: dict[str, float] = field(default_factory=dict)
    """By share, its GPU-seconds of a day; every worker has one card."""
    one: Scheduler = field(init=False)
    two: Scheduler = field(init=False)
    _ends: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.one, self.two = Scheduler(self.policy), Scheduler(self.policy)
        for name, types in self.workers.items():
            self.tell(WorkerReady(name, f"n-{name}", types, gpus=1.0))

    def tell(self, event: SchedulerEvent) -> None:
        self.one.apply(event)
        self.two.apply(event)

    def share(self, name: str, **limits: float) -> None:
        share = Share(name, **limits)  # type: ignore[arg-type]
        if share.max_running is not None:
            self.most[name] = share.max_running
        if share.gpu_seconds_per_day is not None:
            self.gpu_s[name] = share.gpu_seconds_per_day
        self.tell(ShareSet(share))

    def run(self, jobs: Iterable[Job], until: float = float("inf")) -> None:
        """Let these come and work until all has ended, or until then."""
        coming = sorted(jobs, key=lambda job: job.at)
        while coming or self._ends:
            next_at = min(
                coming[0].at + START if coming else float("inf"),
                self._ends[0][0] if self._ends else float("inf"),
            )
            if next_at > START + until:
                return
            self.now = max(self.now, next_at)
            while coming and coming[0].at + START <= self.now:
                self.submit(coming.pop(0))
            while self._ends and self._ends[0][0] <= self.now:
                self.end(heappop(self._ends)[1])
            self.plan()

    def submit(self, job: Job) -> None:
        task_id = f"t{len(self.jobs):04}"
        self.jobs[task_id] = job
        deadline = None if job.deadline_s is None else self.now + job.deadline_s
        task = WaitingTask(
            task_id,
            1,
            job.job_type,
            len(self.jobs),
            job.priority,
            deadline=deadline,
            arrived=self.now,
            owner=job.owner,
            group=job.group,
            group_limit=job.group_limit,
        )
        self.waiting[task_id] = task
        self.tell(TasksQueued((task,)))

    def end(self, task_id: str) -> None:
        job, worker = self.jobs[task_id], self.running.pop(task_id)
        self.tell(TasksRan(job.job_type, worker, 1, job.run_s))
        if self.one.counts(task_id):
            self.tell(AttemptEnded(task_id, job.run_s))
        self.tell(OrderClosed(worker))

    def plan(self) -> None:
        plan = self.one.plan(self.now)
        assert plan == self.two.plan(self.now), "the same events give the same plan"
        for task in plan.expired:
            del self.waiting[task.task_id]
            self.expired.append(task.task_id)
        given = Counter(order.worker_id for order in plan.orders)
        for order in plan.orders:
            for task in order.tasks:
                self._start(order.worker_id, task)
        busy = Counter(self.running.values())
        assert all(count <= 1 for count in busy.values()), "one at a time"
        self._check_critical(given)
        self._check_limits()

    def _start(self, worker: str, task: WaitingTask) -> None:
        del self.waiting[task.task_id]
        assert task.job_type in self.workers[worker]
        for other in self.waiting.values():
            if other.job_type == task.job_type and other.priority > task.priority:
                self.passed[other.task_id] += 1
        self._check_use(task)
        self.running[task.task_id] = worker
        self.started[task.task_id] = self.now
        self.order.append(task.task_id)
        heappush(self._ends, (self.now + self.jobs[task.task_id].run_s, task.task_id))

    def _check_critical(self, given: Counter[str]) -> None:
        left = [
            task
            for task in self.waiting.values()
            if task.priority >= CRITICAL and not self._is_barred(task)
        ]
        running = {worker: task_id for task_id, worker in self.running.items()}
        for task in left:
            for worker, types in self.workers.items():
                if task.job_type in types and worker in given:
                    new = self.jobs[running[worker]]
                    assert new.priority >= CRITICAL, "a critical one waits for running"

    def _check_use(self, task: WaitingTask) -> None:
        quota_s = self.gpu_s.get(f"owner={task.owner}", float("inf"))
        ended = (t for t in self.started if t not in self.running)
        used_s = sum(
            self.jobs[t].run_s for t in ended if self.jobs[t].owner == task.owner
        )
        assert used_s < quota_s, "nothing starts once it is used up"

    def _is_barred(self, task: WaitingTask) -> bool:
        why = self.one.why(task.task_id, self.now)
        return why is not None and why.reason == "quota"

    def _check_limits(self) -> None:
        for name, most in self.most.items():
            key, _, value = name.partition("=")
            assert key == "owner"
            count = sum(self.jobs[t].owner == value for t in self.running)
            assert count <= most, f"{name} runs {count}"
        groups = Counter(
            (job.owner, job.group, job.group_limit)
            for job in map(self.jobs.get, self.running)
            if job is not None and job.group is not None
        )
        assert all(count <= limit for (_, _, limit), count in groups.items())

    def waits(self) -> dict[str, float]:
        """How long each task has waited that was started."""
        return {t: at - START - self.jobs[t].at for t, at in self.started.items()}

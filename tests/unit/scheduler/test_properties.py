"""Whatever happens, in whatever order: what the scheduler always holds to."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from corral.scheduler.events import (
    DependencyMet,
    OrderClosed,
    Paused,
    SchedulerEvent,
    TasksGone,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerBroken,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.plan import Plan
from corral.scheduler.scheduler import Policy, Scheduler
from tests.property_examples import examples

TYPES = ["a", "b", "c"]
WORKERS = ["w1", "w2", "w3"]
POLICY = Policy(order_max_tasks=5, order_max_bytes=100)
some_types = st.frozensets(st.sampled_from(TYPES), min_size=1)


class AnyHistory(RuleBasedStateMachine):
    """Two schedulers get the same events; a simple model says what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Scheduler(POLICY), Scheduler(POLICY)
        self.now = 1000.0
        self.count = 0
        self.waiting: dict[str, WaitingTask] = {}
        self.out: dict[str, WaitingTask] = {}
        self.slots: dict[str, int] = {}
        self.serves: dict[str, frozenset[str]] = {}
        self.open: dict[str, int] = {}
        self.is_paused = False

    def tell(self, event: SchedulerEvent) -> None:
        self.one.apply(event)
        self.two.apply(event)

    @rule(
        job_type=st.sampled_from(TYPES),
        priority=st.integers(-2, 2),
        later=st.sampled_from([0.0, 0.0, 5.0]),
        limit=st.sampled_from([None, None, 7.0]),
        size=st.integers(0, 120),
        data=st.data(),
    )
    def queue(
        self,
        job_type: str,
        priority: int,
        later: float,
        limit: float | None,
        size: int,
        data: st.DataObject,
    ) -> None:
        self.count += 1
        live = [*self.waiting, *self.out]
        needs = data.draw(st.sets(st.sampled_from(live), max_size=2)) if live else ()
        task = WaitingTask(
            task_id=f"t{self.count}",
            attempt=1,
            job_type=job_type,
            seq=self.count,
            priority=priority,
            run_after=self.now + later if later else 0.0,
            deadline=None if limit is None else self.now + limit,
            needs=frozenset(needs),
            size=size,
        )
        self.waiting[task.task_id] = task
        self.tell(TasksQueued((task,)))

    @rule(worker=st.sampled_from(WORKERS), types=some_types, slots=st.integers(1, 3))
    def start_worker(self, worker: str, types: frozenset[str], slots: int) -> None:
        self.slots[worker], self.serves[worker] = slots, types
        self.open[worker] = 0
        self.tell(WorkerReady(worker, "n", types, slots))

    @rule(worker=st.sampled_from(WORKERS), is_broken=st.booleans())
    def lose_worker(self, worker: str, is_broken: bool) -> None:
        types = self.serves.pop(worker, frozenset(TYPES))
        self.slots.pop(worker, None)
        self.open.pop(worker, None)
        gone = (
            WorkerBroken(worker, types, "broken") if is_broken else WorkerGone(worker)
        )
        self.tell(gone)

    @rule(worker=st.sampled_from(WORKERS))
    def close_order(self, worker: str) -> None:
        if worker in self.open:
            self.open[worker] = max(0, self.open[worker] - 1)
        self.tell(OrderClosed(worker))

    @rule(
        job_type=st.sampled_from(TYPES),
        count=st.integers(1, 9),
        seconds=st.floats(0.0, 5.0),
    )
    def learn(self, job_type: str, count: int, seconds: float) -> None:
        self.tell(TasksRan(job_type, "w1", count, seconds))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            task_id = data.draw(st.sampled_from(sorted(self.waiting)))
            del self.waiting[task_id]
            self.tell(TasksGone((task_id,)))

    @rule(data=st.data(), is_completed=st.booleans())
    def end(self, data: st.DataObject, is_completed: bool) -> None:
        """A task that was handed out completes, or comes back as a new attempt."""
        if not self.out:
            return
        task = self.out.pop(data.draw(st.sampled_from(sorted(self.out))))
        if is_completed:
            self.tell(DependencyMet(task.task_id))
            self.meet(task.task_id)
        else:
            again = WaitingTask(
                task.task_id, task.attempt + 1, task.job_type, task.seq, task.priority
            )
            self.waiting[task.task_id] = again
            self.tell(TasksQueued((again,)))

    def meet(self, task_id: str) -> None:
        for name, task in list(self.waiting.items()):
            if task_id in task.needs:
                self.waiting[name] = _without(task, task_id)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused
        self.tell(Paused(is_paused))

    @rule(seconds=st.floats(0.0, 6.0))
    def step(self, seconds: float) -> None:
        """Time passes, and nobody asks for a plan yet."""
        self.now += seconds

    @rule(seconds=st.floats(0.0, 6.0))
    def step_and_plan(self, seconds: float) -> None:
        self.now += seconds
        plan = self.one.plan(self.now)
        assert plan == self.two.plan(self.now), "the same events give the same plan"
        self.check_expired(plan)
        self.check_orders(plan)
        assert plan.next_wake is None or plan.next_wake > self.now

    def check_expired(self, plan: Plan) -> None:
        gone = {t.task_id for t in plan.expired}
        late = [
            t.task_id
            for t in self.waiting.values()
            if t.deadline is not None and t.deadline <= self.now
        ]
        assert gone == set(late), "what is past its deadline expires, nothing else"
        for task_id in gone:
            del self.waiting[task_id]

    def check_orders(self, plan: Plan) -> None:
        assert not (self.is_paused and plan.orders)
        for order in plan.orders:
            job_type = order.tasks[0].job_type
            self.open[order.worker_id] += 1
            assert {t.job_type for t in order.tasks} == {job_type}
            assert job_type in self.serves[order.worker_id]
            assert 1 <= len(order.tasks) <= POLICY.order_max_tasks
            if len(order.tasks) > 1:
                assert sum(t.size for t in order.tasks) <= POLICY.order_max_bytes
            for task in order.tasks:
                waited = self.waiting.pop(task.task_id)  # so each is planned once
                assert waited.attempt == task.attempt
                assert not waited.needs
                assert waited.run_after <= self.now
                self.out[task.task_id] = waited
        self.check_sequence(plan)

    def check_sequence(self, plan: Plan) -> None:
        for job_type in TYPES:
            given = [
                self.out[task.task_id]
                for order in plan.orders
                for task in order.tasks
                if task.job_type == job_type
            ]
            left = [
                t
                for t in self.waiting.values()
                if t.job_type == job_type and not t.needs and t.run_after <= self.now
            ]
            for place, task in enumerate(given):
                later = given[place + 1 :]
                assert all(_may_precede(task, t) for t in later), "best first"
                assert all(_may_precede(task, t) for t in left), "no better one is left"

    @invariant()
    def no_worker_has_more_orders_than_twice_its_slots(self) -> None:
        for worker, count in self.open.items():
            assert count <= 2 * self.slots[worker]

    @invariant()
    def nothing_is_forgotten_and_every_wait_has_a_reason(self) -> None:
        assert self.one.waiting_count() == len(self.waiting)
        for task_id in self.waiting:
            reason = self.one.why(task_id, self.now)
            assert reason is not None
            assert reason.message
        for task_id in self.out:
            assert self.one.why(task_id, self.now) is None

    @invariant()
    def an_estimate_is_a_time_or_unknown(self) -> None:
        for job_type in TYPES:
            wait_s = self.one.estimated_wait_s(job_type)
            assert wait_s is None or wait_s >= 0.0


def _may_precede(task: WaitingTask, other: WaitingTask) -> bool:
    """A near deadline goes before those of the same priority, whoever came first."""
    if task.priority != other.priority:
        return task.priority > other.priority
    return task.seq < other.seq or task.deadline is not None


def _without(task: WaitingTask, need: str) -> WaitingTask:
    return WaitingTask(
        task.task_id,
        task.attempt,
        task.job_type,
        task.seq,
        task.priority,
        task.run_after,
        task.deadline,
        task.needs - {need},
        task.size,
    )


AnyHistory.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestAnyHistory = AnyHistory.TestCase

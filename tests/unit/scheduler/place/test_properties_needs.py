"""Whatever happens: no GPU is given twice, nothing is given that is not there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from corral.core.tasks.needs import LEAST, WHOLE, Need
from corral.core.tasks.options import Gang
from corral.scheduler.events import (
    AttemptEnded,
    CardOffer,
    NodeOffers,
    OrderClosed,
    OutOfMemory,
    SchedulerEvent,
    TasksGone,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.plan import PlannedOrder
from corral.scheduler.scheduler import Policy, Scheduler
from tests.property_examples import examples

NODES = ["n1", "n2", "n3"]
TYPES = frozenset({"a", "b"})
CPU, MEMORY, CARD_MB = 8 * WHOLE, 16_384, 24_576
needs = st.one_of(
    st.none(),
    st.builds(
        Need,
        st.sampled_from([0, 500, 4_000]),
        st.sampled_from([0, 8_192]),
        st.sampled_from([LEAST, 300, 500, WHOLE]),
        st.sampled_from([1, 1, 2, 4]),
        st.sampled_from([0, 8_000, 20_000]),
    ),
    st.builds(Need, st.sampled_from([1_000, 8_000]), st.sampled_from([0, 12_000])),
)


def offer(node: str, own: int = 0, foreign_mb: int = 0) -> NodeOffers:
    """Four cards, of which the first `own` are its worker's."""
    return NodeOffers(
        node,
        CPU,
        MEMORY,
        tuple(
            CardOffer(
                f"{node}-{n}",
                "A",
                "nvidia",
                CARD_MB,
                foreign_mb if n == 3 else 0,
                f"w-{node}" if n < own else "",
            )
            for n in range(4)
        ),
    )


class AnyNeeds(RuleBasedStateMachine):
    """Two schedulers get the same events; what is out is counted beside them."""

    def __init__(self) -> None:
        super().__init__()
        policy = Policy(order_max_tasks=3)
        self.one, self.two = Scheduler(policy), Scheduler(policy)
        self.now, self.count = 1_000.0, 0
        self.out: dict[str, tuple[WaitingTask, PlannedOrder, str]] = {}
        self.waiting: dict[str, WaitingTask] = {}
        self.foreign: Counter[str] = Counter()
        self.own: Counter[str] = Counter()
        self.up: set[str] = set()
        for node in NODES:
            self.tell(offer(node))
            self.start(node)
        self.tell(TasksRan("a", "w-n1", 1, 5.0))

    def tell(self, event: SchedulerEvent) -> None:
        self.one.apply(event)
        self.two.apply(event)

    def start(self, node: str) -> None:
        self.up |= {f"w-{node}", f"v-{node}"}
        for worker in (f"w-{node}", f"v-{node}"):
            held = [o for _, o, _ in self.out.values() if o.worker_id == worker]
            self.tell(WorkerReady(worker, node, TYPES, 3, len(held)))

    @rule(
        need=needs,
        job_type=st.sampled_from(sorted(TYPES)),
        priority=st.sampled_from([-10, 0, 0, 10, 100]),
        size=st.sampled_from([0, 0, 0, 2, 3]),
    )
    def queue(self, need: Need | None, job_type: str, priority: int, size: int) -> None:
        self.count += 1
        for rank in range(max(1, size)):
            task = WaitingTask(
                f"t{self.count}-{rank}",
                1,
                job_type,
                10 * self.count + rank,
                priority,
                arrived=self.now,
                need=need,
                gang=Gang(f"g{self.count}", rank, size) if size else None,
            )
            self.waiting[task.task_id] = task
            self.tell(TasksQueued((task,)))

    @rule(data=st.data(), how=st.sampled_from(["done", "again", "short"]))
    def end(self, data: st.DataObject, how: str) -> None:
        if not self.out:
            return
        task_id = data.draw(st.sampled_from(sorted(self.out)))
        task, order, _ = self.out.pop(task_id)
        if how == "short":
            event = OutOfMemory(task_id, task.job_type, task.model, order.worker_id)
            self.tell(event)
        self.tell(AttemptEnded(task_id, 3.0))
        self.tell(OrderClosed(order.worker_id))
        if how != "done":
            again = replace(task, attempt=task.attempt + 1, gang=None)
            self.waiting[task_id] = again
            self.tell(TasksQueued((again,)))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            task_id = data.draw(st.sampled_from(sorted(self.waiting)))
            del self.waiting[task_id]
            self.tell(TasksGone((task_id,)))

    @rule(node=st.sampled_from(NODES), foreign_mb=st.sampled_from([0, 10_000, 24_000]))
    def use(self, node: str, foreign_mb: int) -> None:
        self.foreign[node] = foreign_mb
        self.tell(offer(node, self.own[node], foreign_mb))

    @rule(node=st.sampled_from(NODES), own=st.integers(0, 2))
    def bind(self, node: str, own: int) -> None:
        """Its worker gets cards of its own: nobody may have any of them then."""
        if not any(o.cards and n == node for _, o, n in self.out.values()):
            self.own[node] = own
            self.tell(offer(node, own, self.foreign[node]))

    @rule(node=st.sampled_from(NODES))
    def lose(self, node: str) -> None:
        for task_id, (task, _, where) in list(self.out.items()):
            if where == node:
                del self.out[task_id]
                again = replace(task, attempt=task.attempt + 1, gang=None)
                self.waiting[task_id] = again
                self.tell(TasksQueued((again,)))
        for worker in (f"w-{node}", f"v-{node}"):
            self.tell(WorkerGone(worker))
        self.start(node)

    @rule(seconds=st.sampled_from([0.0, 1.0, 600.0, 2_000.0]))
    def plan(self, seconds: float) -> None:
        self.now += seconds
        plan = self.one.plan(self.now)
        assert plan == self.two.plan(self.now), "the same events, the same plan"
        gangs: dict[str, set[str]] = {}
        for order in plan.orders:
            node = order.worker_id.partition("-")[2]
            for task in order.tasks:
                del self.waiting[task.task_id]
                assert task.task_id not in self.out
                self.out[task.task_id] = (task, order, node)
                if task.gang is not None:
                    gangs.setdefault(task.gang.name, set()).add(node)
                    size = task.gang.size
                    assert len({o.lead for o in plan.orders if _of(o, task)}) == 1
                    assert sum(_of(o, task) for o in plan.orders) == size
        for name, nodes in gangs.items():
            members = [t for o in plan.orders for t in o.tasks if t.gang]
            count = sum(t.gang is not None and t.gang.name == name for t in members)
            assert len(nodes) == count, "each on a node of its own"

    @invariant()
    def nothing_is_given_twice(self) -> None:
        shares: Counter[str] = Counter()
        card_mb: Counter[str] = Counter()
        cpu: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        for task, order, node in self.out.values():
            need = task.need
            if need is None:
                continue
            assert len(set(order.cards)) == len(order.cards) == need.gpus
            for card in order.cards:
                assert card.startswith(node)
                shares[card] += need.share
                card_mb[card] += need.gpu_mb
            cpu[node] += need.cpu_milli
            memory[node] += need.memory_mb
        assert all(share <= WHOLE for share in shares.values())
        assert all(mb <= CARD_MB for mb in card_mb.values())
        assert all(milli <= CPU for milli in cpu.values())
        assert all(mb <= MEMORY for mb in memory.values())

    @invariant()
    def every_task_that_waits_has_a_reason(self) -> None:
        for task_id in list(self.waiting)[:3]:
            assert self.one.why(task_id, self.now) is not None
            assert self.one.explain(task_id, self.now) is not None

    def teardown(self) -> None:
        """With nothing new coming, whatever could ever start does start."""
        for node in NODES:
            self.foreign[node] = 0
            self.tell(offer(node, self.own[node]))
        for _ in range(len(self.waiting) + 2):
            self.plan(2_000.0)
            for task_id, (_, order, _) in list(self.out.items()):
                del self.out[task_id]
                self.tell(AttemptEnded(task_id, 3.0))
                self.tell(OrderClosed(order.worker_id))
        for task_id, task in self.waiting.items():
            if task.gang is None:
                assert not self.one.fits_somewhere(task), self.one.why(
                    task_id, self.now
                )


def _of(order: PlannedOrder, task: WaitingTask) -> bool:
    gang = order.tasks[0].gang
    return gang is not None and task.gang is not None and gang.name == task.gang.name


TestAnyNeeds = AnyNeeds.TestCase
TestAnyNeeds.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)

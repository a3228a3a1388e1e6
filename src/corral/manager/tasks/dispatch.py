"""Turns plans into orders: guarded placement in the store, then the message.

An order goes out in the answer to a report when its worker waits for one, else through
the engine. What goes where is the scheduler's; here nothing is chosen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from corral.core.models.model import models_to_drop
from corral.core.nodes.gpu_choice import visible
from corral.core.tasks.job_type import MODEL_TASK
from corral.core.tasks.options import variables
from corral.core.tasks.outcome import Outcome, OutcomeKind
from corral.core.tasks.task import State, Task
from corral.engine.envelope import queue_name, signed_order
from corral.errors import CorralError, EngineUnavailable, StoreUnavailable
from corral.manager.access.derived_keys import worker_secret
from corral.manager.cluster.state import Cluster, OpenOrder, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.signals import TasksPlaced
from corral.manager.tasks.cancel import preempt
from corral.manager.tasks.explain import expected_s
from corral.manager.tasks.settle import FOLLOWED_S, Settle, told_of
from corral.scheduler.events import OrderClosed, TasksQueued
from corral.scheduler.plan import Plan, PlannedOrder, Stop
from corral.store.base import Placement, TaskStore
from corral.wire.orders import Item, Order

log = logging.getLogger(__name__)
_RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class ReadyOrder:
    """An order whose tasks are durably assigned; only the sending is left."""

    link: WorkerLink
    tasks: tuple[Task, ...]
    payloads: Mapping[str, str]
    unload: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    lead: str = ""


class Dispatch:
    """Plans when kicked; one placement commit at a time."""

    def __init__(self, ctx: ManagerContext, settle: Settle) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks
        self._engine = ctx.engine
        self._settle = settle
        self._clock = ctx.clock
        self._secret = ctx.secret
        self._kicked = asyncio.Event()
        self._stored: list[PlannedOrder] = []
        self._asking: dict[str, WorkerLink] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._strays: set[asyncio.Task[object]] = set()
        self._signals = ctx.signals
        self._counters = ctx.counters
        self._tracing = ctx.tracing
        self.in_hand: set[str] = set()
        """Tasks that were planned and whose order is not open yet."""

    def kick(self) -> None:
        self._kicked.set()

    def ask(self, link: WorkerLink) -> None:
        """A worker waits for its next order in the answer to its report."""
        self._asking[link.id] = link
        self.kick()

    async def run(self) -> None:
        """The scheduling loop; sleeps until something changed."""
        while True:
            await self._kicked.wait()
            # Before the look: what changes during a cycle asks for another one.
            self._kicked.clear()
            await self._cycle()

    async def _cycle(self) -> None:
        orders = [*self._stored, *self.plan().orders]
        self._release_replies(orders)
        # Rows of an insert under way are not there yet to be placed; it kicks when
        # it is through.
        self._stored = [o for o in orders if self._is_unstored(o)]
        orders = [o for o in orders if not self._is_unstored(o)]
        if orders:
            try:
                await self._hand_over(orders)
            finally:
                self.let_go(orders)

    async def _hand_over(self, orders: Sequence[PlannedOrder]) -> None:
        try:
            ready = await self._place(orders)
        except CorralError as e:
            log.warning("placement failed, trying again: %s", e.message)
            self._give_back(orders)
            # The rows may be placed all the same: then the rescue loop finds them
            # ahead of memory, and takes them over.
            self._cluster.doubt(isinstance(e, StoreUnavailable))
            asyncio.get_running_loop().call_later(_RETRY_S, self.kick)
            return
        for order in ready:
            await self.send(order)
        self.kick()

    def _is_unstored(self, order: PlannedOrder) -> bool:
        unstored = self._cluster.unstored
        return bool(unstored) and any(w.task_id in unstored for w in order.tasks)

    def plan(self) -> Plan:
        """Ask the scheduler; ends expired tasks and arms the next wake-up."""
        now, began = self._clock.now().timestamp(), self._clock.monotonic()
        plan = self._cluster.scheduler.plan(now, can_send=self._cluster.is_engine_up)
        placed = [w.task_id for order in plan.orders for w in order.tasks]
        self._counters.plan(self._clock.monotonic() - began, len(placed))
        self.in_hand.update(placed)
        if plan.preempt:
            self._stray(self._preempt(plan.preempt))
        if plan.expired:
            self._stray(self._settle.expire([w.task_id for w in plan.expired]))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if plan.next_wake is not None:
            delay = max(0.0, plan.next_wake - now) + 0.001
            loop = asyncio.get_running_loop()
            # The wake-up is by the wall clock and the timer is not: a clock that is set
            # forward costs an hour at most.
            self._timer = loop.call_later(min(delay, 3600.0), self.kick)
        return plan

    async def _preempt(self, stops: Sequence[Stop]) -> None:
        await preempt(self._cluster, self._settle, self._engine, stops)
        self.kick()

    def let_go(self, orders: Sequence[PlannedOrder]) -> None:
        """These orders are open now, or their tasks wait again."""
        self.in_hand.difference_update(w.task_id for o in orders for w in o.tasks)

    def later(self, orders: Sequence[PlannedOrder]) -> None:
        """Orders a submit planned for tasks that are stored as queued already."""
        self._stored.extend(orders)
        self.kick()

    def _stray(self, coroutine: Coroutine[Any, Any, object]) -> None:
        # Whoever's request it is that this comes with, it is not about that alone.
        task = asyncio.create_task(coroutine, context=Context())
        self._strays.add(task)
        task.add_done_callback(self._forget_stray)

    def _forget_stray(self, task: asyncio.Task[object]) -> None:
        self._strays.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The rescue loop finds these tasks again.
            log.warning("a hand-over broke off: %s", error)
            self._cluster.doubt()

    def _release_replies(self, orders: Sequence[PlannedOrder]) -> None:
        """Who asked for an order and gets none now is answered at once."""
        planned = {order.worker_id for order in orders}
        for link in [w for w in self._asking.values() if w.id not in planned]:
            del self._asking[link.id]
            for reply in link.replies:
                if not reply.done():
                    reply.set_result(None)
            link.replies.clear()

    async def _place(self, orders: Sequence[PlannedOrder]) -> list[ReadyOrder]:
        due, placements = self._still_served(orders)
        now = self._clock.now()
        with self._signals.writing() as tell:
            payloads = await self._store.place_tasks(
                self._cluster.term, placements, now
            )
            tell(TasksPlaced(placements, now, payloads))
        # Durable from here on, and not sent: if we die now the next manager opens these
        # orders again, and gives them out anew when beats lack them.
        incarnations = {p.worker_id: p.incarnation for p in placements}
        ready = []
        for order in due:
            # During the write a worker may have gone or begun anew; the row names the
            # process that was. No await between this look and `_assign`.
            link = self._cluster.link(order.worker_id)
            if link and link.worker.incarnation != incarnations[order.worker_id]:
                link = None
            tasks = self._assign(order, link, payloads, now)
            await self._settle.sync(
                [w.task_id for w in order.tasks if w.task_id not in payloads]
            )
            if link is None:
                self._stray(self.give_up(tasks))
            if link is not None and tasks:
                given = (order.unload, order.cards, order.lead)
                ready.append(ReadyOrder(link, tuple(tasks), payloads, *given))
            else:
                self._cluster.scheduler.apply(OrderClosed(order.worker_id))
        return ready

    def _still_served(
        self, orders: Sequence[PlannedOrder]
    ) -> tuple[list[PlannedOrder], list[Placement]]:
        """Orders whose worker is still there; the tasks of the others wait again."""
        due: list[PlannedOrder] = []
        placements: list[Placement] = []
        for order in orders:
            link = self._cluster.link(order.worker_id)
            if link is None or link.worker.incarnation is None:
                self._give_back([order])
                self.kick()
                continue
            due.append(order)
            place = (link.id, link.worker.incarnation, link.worker.node_id)
            placements += [Placement(w.task_id, w.attempt, *place) for w in order.tasks]
        return due, placements

    def _assign(
        self,
        order: PlannedOrder,
        link: WorkerLink | None,
        payloads: Mapping[str, str],
        now: datetime,
    ) -> list[Task]:
        """The order's tasks that the store gave to its worker, and memory as well.

        Without a link they are what must be taken back from a worker that is gone.
        """
        return [
            self._cluster.assign(task, link, now) if link else task
            for w in order.tasks
            if w.task_id in payloads
            and (task := self._cluster.tasks.get(w.task_id)) is not None
            and task.state is State.QUEUED
            and task.attempt == w.attempt
        ]

    def _give_back(self, orders: Sequence[PlannedOrder]) -> None:
        for order in orders:
            waiting = tuple(w for w in order.tasks if w.task_id in self._cluster.tasks)
            self._cluster.scheduler.apply(TasksQueued(waiting))
            self._cluster.scheduler.apply(OrderClosed(order.worker_id))
            for left in waiting:
                if left.gang is not None:
                    self._signals.unsent.tell(left.task_id)

    async def send(self, ready: ReadyOrder) -> None:
        """Hand over a placed order; when that fails its tasks go back uncharged."""
        link = ready.link
        ready = self._still_due(ready)
        if not ready.tasks:
            self._cluster.scheduler.apply(OrderClosed(link.id))
            return
        self._tell(link, ready.tasks)
        order_id = uuid.uuid4().hex
        left = {t.id for t in ready.tasks}
        opened = OpenOrder(order_id, self._clock.monotonic(), left)
        # Before the first await: whoever cancels, retires the worker or looks for
        # strays meanwhile must see whose these tasks are. Lost on any way below, an
        # order is missed in the beats, and its tasks go back.
        self._cluster.open_order(link, opened)
        incarnation = link.worker.incarnation or ""
        try:
            items = await self._items(ready)
        except StoreUnavailable:
            self._stray(self.give_up(ready.tasks))
            return
        moves = (bytes(i.payload) for i in items if i.job_type == MODEL_TASK)
        unload = [*ready.unload, *models_to_drop(moves)]
        order = Order(order_id, link.id, incarnation, items, unload)
        if link.inside is not None:
            link.inside.take(order)
            return
        signed = signed_order(order, worker_secret(self._secret, link.id, incarnation))
        while link.replies:
            reply = link.replies.pop(0)
            if not reply.done():
                reply.set_result(signed)
                return
        queue = queue_name(link.worker.node_id, link.id)
        if not self._cluster.is_engine_up:
            self._stray(self.give_up(ready.tasks))
            return
        log.debug("order_sent", extra={"order_id": order_id, "queue": queue})
        try:
            await self._engine.send(queue, order_id, signed)
        except EngineUnavailable as e:
            log.warning("cannot send an order: %s", e.message)
            self._cluster.set_engine(False)
            self._stray(self.give_up(ready.tasks))

    def _tell(self, link: WorkerLink, tasks: Sequence[Task]) -> None:
        """Say where tasks go; of those too short for anybody to follow, quietly."""
        level = logging.DEBUG if len(tasks) > 1 else logging.INFO
        if not log.isEnabledFor(level):
            return
        for task in tasks:
            expects_s = expected_s(self._cluster, task)
            if expects_s is not None and expects_s < FOLLOWED_S:
                level = logging.DEBUG
            told = {"worker_id": link.id, "estimated_duration": expects_s}
            log.log(level, "task_scheduled", extra=told_of(task.spec) | told)

    def _still_due(self, ready: ReadyOrder) -> ReadyOrder:
        """Leave out what was cancelled or taken away while the commit was under way."""
        incarnation = ready.link.worker.incarnation
        due: list[Task] = []
        homeless: list[Task] = []
        for task in ready.tasks:
            now = self._cluster.tasks.get(task.id)
            if now is None or now.attempt != task.attempt:
                continue
            (due if now.incarnation == incarnation else homeless).append(task)
        if homeless:
            self._stray(self.give_up(homeless))
        return replace(ready, tasks=tuple(due))

    async def forget(self, link: WorkerLink) -> None:
        """What still lies in the queue of a worker that is gone is nobody's."""
        with contextlib.suppress(EngineUnavailable):
            await self._engine.forget(queue_name(link.worker.node_id, link.id))

    async def give_up(self, tasks: Sequence[Task]) -> None:
        """Tasks that never reached their worker go back as a new attempt."""
        # A copy of the order that arrives after all has the old number: its reports
        # are not heard, and the worker is told to drop it.
        await self._settle.settle(
            Outcome(t.id, t.attempt, OutcomeKind.RETURNED) for t in tasks
        )
        self.kick()

    async def _items(self, ready: ReadyOrder) -> list[Item]:
        needed = {d for t in ready.tasks for d in t.spec.depends_on}
        outputs: dict[str, str] = {}
        if needed:
            stored = await self._store.get_tasks(sorted(needed))
            outputs = {t.id: t.result or "null" for t in stored}
        now = self._clock.now()
        models = {t.spec.model for t in ready.tasks if t.spec.model}
        editions = {model: self._cluster.edition(model) for model in models}
        return [
            Item(
                task_id=t.id,
                attempt=t.attempt,
                job_type=t.spec.job_type,
                payload=Raw((t.spec.payload or ready.payloads[t.id]).encode()),
                timeout_s=_time_left(t, now.timestamp()),
                inputs=_inputs(t, outputs),
                labels=dict(t.spec.labels) or None,
                overlap=t.spec.overlap.value,
                model=t.spec.model,
                variables=given(self._cluster, ready.link, t, ready.cards, ready.lead),
                emitted=_emitted(self._cluster.streams.emitted(t.id, t.attempt)),
                request_id=t.spec.options.request_id,
                traceparent=self._tracing.traceparent(t),
                profile=t.spec.options.profile or "",
                edition=editions.get(t.spec.model or "", ""),
                owner=t.spec.owner,
            )
            for t in ready.tasks
        ]


def _inputs(task: Task, outputs: Mapping[str, str]) -> Raw | UnsetType:
    """Results of the tasks it depends on, by their ids."""
    needed = task.spec.depends_on
    told = {d: Raw(outputs.get(d, "null").encode()) for d in needed}
    return Raw(msgspec.json.encode(told)) if told else UNSET


def _emitted(pieces: Sequence[bytes]) -> Raw | UnsetType:
    return Raw(b"[" + b",".join(pieces) + b"]") if pieces else UNSET


def given(
    cluster: Cluster, link: WorkerLink, task: Task, cards: Sequence[str], lead: str
) -> dict[str, str] | None:
    """The variables that show a task its GPUs and the others of its gang."""
    shown: dict[str, str] = {}
    node = cluster.nodes.get(link.worker.node_id)
    if cards:
        known = {gpu.id: gpu for gpu in (node.gpus if node else None) or ()}
        shown = visible([known[card] for card in cards if card in known])
        shown["CORRAL_GPUS"] = ",".join(cards)
    gang = task.spec.options.member
    if gang is not None:
        first = cluster.link(lead) or link
        host = cluster.nodes.get(first.worker.node_id)
        address = (host.node.address if host else None) or "127.0.0.1"
        shown |= variables(gang, address, task.attempt, len(cards))
    return shown or None


def _time_left(task: Task, now: float) -> float | None:
    limits = []
    if task.spec.timeout_s is not None:
        limits.append(task.spec.timeout_s)
    if task.spec.deadline is not None:
        limits.append(max(0.01, task.spec.deadline.timestamp() - now))
    return min(limits, default=None)

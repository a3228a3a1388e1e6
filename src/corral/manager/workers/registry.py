"""Workers: which should run where, who has registered, and what their beats say.

An incarnation is one process of a worker; what a former one still says is not heard.
Also here: job types that were connected to a URL before there was a worker of it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from corral.core.nodes.worker import WorkerRecord, WorkerSpec, WorkerState
from corral.core.tasks.job_type import JobType
from corral.core.tasks.task import Task
from corral.engine.envelope import queue_name
from corral.errors import Conflict
from corral.manager.access.derived_keys import worker_secret, worker_token
from corral.manager.clock import new_id
from corral.manager.cluster import gpus
from corral.manager.cluster import scheduler_events as serving
from corral.manager.cluster.state import NodeLink, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.group_commit import GroupCommit
from corral.manager.signals import NameChanged
from corral.manager.tasks.cancel import stopped
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.tasks.settle import Settle, homeless, orphan
from corral.scheduler.events import TypesServed, WorkerGone
from corral.store.base import RegistryStore
from corral.wire.agent import WorkerBeat

log = logging.getLogger(__name__)
_KEPT = 1000


@dataclass(frozen=True, slots=True)
class WorkerAccess:
    """What a worker that registered needs: `queue` has its orders, `secret` signs
    them, `token` is what we show its own port.
    """

    worker: WorkerRecord
    incarnation: str
    queue: str
    secret: str
    token: str


class WorkerRegistry:
    """`unheld_grace_s`: so long after it was sent an order may be unheard of."""

    def __init__(
        self,
        ctx: ManagerContext,
        settle: Settle,
        dispatch: Dispatch,
        unheld_grace_s: float = 3.0,
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._signals = ctx.signals
        self._settle = settle
        self._dispatch = dispatch
        self._clock = ctx.clock
        self._secret = ctx.secret
        self._grace_s = unheld_grace_s
        self.connecting = PendingConnections()
        self._saves: GroupCommit[WorkerRecord, None] = GroupCommit(self._save_all)

    async def declare(self, link: NodeLink, specs: Sequence[WorkerSpec]) -> None:
        by_name = {w.worker.spec.name: w for w in self._cluster.of_node(link.node.id)}
        wanted: list[WorkerRecord] = []
        for spec in specs:
            old = by_name.get(spec.name)
            spec = self.connecting.complete(spec, old.worker.spec if old else None)
            await self.ensure_job_types(spec.job_types)
            worker_id = old.id if old else new_id("w")
            generation = old.worker.generation if old else 0
            row = WorkerRecord(worker_id, link.node.id, spec, generation=generation)
            wanted.append(row)
        await self._store.save_workers(wanted)
        for row in wanted:
            self._cluster.add_worker(row)
        names = {s.name for s in specs}
        for name, old in by_name.items():
            is_declared = not old.worker.spec.is_launched
            if is_declared and name not in names:
                await self._remove(old)
        for worker in self._cluster.of_node(link.node.id):
            worker.is_parked = link.is_draining
            if worker.is_parked:
                self.set_serving(worker, WorkerState.STOPPED)
        link.touch_desired()

    async def launch(self, node_id: str, spec: WorkerSpec) -> WorkerLink:
        """Want one more worker on a node.

        Raises:
            Conflict: the node is held.
        """
        node = self._cluster.node(node_id)
        node.check_open()
        spec = self.connecting.complete(spec)
        await self.ensure_job_types(spec.job_types)
        worker = await self._save(WorkerRecord(new_id("w"), node_id, spec))
        node.touch_desired()
        return worker

    async def launch_all(
        self, node_id: str, specs: Sequence[WorkerSpec]
    ) -> list[WorkerLink]:
        """Want these workers on a node.

        Raises:
            Conflict: the node is held, or has a worker of such a name.
        """
        taken = {link.worker.spec.name for link in self._cluster.of_node(node_id)}
        if taken & {spec.name for spec in specs}:
            raise Conflict(f"node {node_id} has a worker of this name already")
        return [await self.launch(node_id, spec) for spec in specs]

    async def serve(self, link: WorkerLink, job_type: str) -> None:
        """Let a worker serve one more job type, from now on and after a restart."""
        await self.ensure_job_types([job_type])
        spec = link.worker.spec
        if job_type in spec.job_types:
            return
        spec = replace(spec, job_types=(*spec.job_types, job_type))
        await self._save(replace(link.worker, spec=spec))
        if self._cluster.is_serving(link.worker) and not link.is_leaving:
            served = frozenset(spec.job_types)
            self._cluster.scheduler.apply(TypesServed(link.id, served))
            self._dispatch.kick()

    async def stop(self, worker_id: str) -> None:
        link = self._cluster.worker(worker_id)
        link.is_leaving = True
        await self.retire(link, WorkerState.STOPPED)
        await self._remove(link)
        self._cluster.node(link.worker.node_id).touch_desired()

    async def _save(self, worker: WorkerRecord) -> WorkerLink:
        await self._saves.put(worker)
        return self._cluster.add_worker(worker)

    async def _save_all(self, workers: Sequence[WorkerRecord]) -> list[None]:
        await self._store.save_workers(workers)
        return [None] * len(workers)

    async def _remove(self, link: WorkerLink) -> None:
        # Tasks for this worker alone end first: were its row gone before, and we died,
        # they would wait for a worker that nobody knows.
        await self._settle.settle(homeless(self._cluster.tasks.values(), link.id))
        await self._store.delete_worker(link.id)
        self._cluster.drop_worker(link.id)
        self._cluster.scheduler.apply(WorkerGone(link.id))
        await self._dispatch.forget(link)

    async def ensure_job_types(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._cluster.job_types:
                await self.save_job_type(JobType(name, created_at=self._clock.now()))

    async def save_job_type(self, job_type: JobType) -> None:
        await self._store.save_job_type(job_type)
        self._signals.written.tell(NameChanged("job_type_changed", job_type.name))
        self._cluster.set_job_type(job_type)

    async def admit(self, worker_id: str, epoch: int, pid: int) -> WorkerAccess:
        """A supervisor started, under an agent of this epoch.

        Raises:
            Conflict: that epoch is over.
        """
        node = self._cluster.node(self._cluster.worker(worker_id).worker.node_id).node
        if epoch != node.epoch:
            raise Conflict("this agent's epoch is over", epoch=node.epoch)
        worker = await self.register_worker(worker_id, pid)
        incarnation = worker.incarnation or ""
        return WorkerAccess(
            worker,
            incarnation,
            queue_name(worker.node_id, worker_id),
            worker_secret(self._secret, worker_id, incarnation),
            worker_token(self._secret, worker_id),
        )

    async def register_worker(self, worker_id: str, pid: int) -> WorkerRecord:
        """A supervisor started: a new incarnation, not yet serving."""
        link = self._cluster.worker(worker_id)
        # What the former process had goes back before the new one has a name to be
        # given anything by.
        await self.retire(link, WorkerState.STARTING)
        worker = replace(
            link.worker,
            incarnation=secrets.token_hex(8),
            pid=pid,
            state=WorkerState.STARTING,
            error=None,
            started_at=self._clock.now(),
        )
        link.answers.clear()
        link.is_leaving, link.registered_at = False, self._clock.monotonic()
        await self._save(worker)
        return worker

    def set_serving(
        self, link: WorkerLink, state: WorkerState, error: str | None = None
    ) -> None:
        """Tell the scheduler whether this worker can take orders."""
        worker = link.worker
        was_serving = self._cluster.is_serving(worker)
        link.worker = replace(worker, state=state, error=error)
        if link.is_parked or not self._cluster.is_serving(link.worker):
            self._cluster.scheduler.apply(serving.worker_out(link))
        elif not was_serving:
            if link.registered_at is not None:
                link.start_s = self._clock.monotonic() - link.registered_at
                link.registered_at = None
            self._cluster.scheduler.apply(serving.worker_ready(self._cluster, link))
            self._dispatch.kick()

    async def retire(
        self, link: WorkerLink, state: WorkerState, *, is_charged: bool = True
    ) -> None:
        """This incarnation is dead: its attempts go back, its orders are void."""
        if link.worker.incarnation is None and not link.orders:
            self.set_serving(link, state, link.worker.error)
            return
        # Before any await: what the dead process still reports is refused from here on.
        # In memory only: a manager that begins anew learns it from the next beat's pid.
        dead = link.worker.incarnation
        link.worker = replace(link.worker, incarnation=None, pid=None)
        self.set_serving(link, state, link.worker.error)
        link.orders.clear()
        link.drops.clear()
        stopped(self._cluster, link, set(link.lingering))
        link.shelf.clear()
        lost = [t for t in self._cluster.tasks.values() if t.incarnation == dead]
        await self._settle.settle(
            orphan(t, is_charged=is_charged and not link.is_leaving)
            for t in lost
            if t.worker_id == link.id and t.id not in self._cluster.kept
        )
        for reply in link.replies:
            if not reply.done():
                reply.set_result(None)
        link.replies.clear()
        self._dispatch.kick()

    async def beat(self, link: WorkerLink, beat: WorkerBeat) -> list[tuple[str, int]]:
        worker = link.worker
        # Not its tasks' fault: it was taken from the card it had.
        link.is_leaving |= gpus.has_moved(link.facts, beat.facts)
        link.memory_mb, link.facts = beat.memory_mb, beat.facts
        link.breaker = beat.breaker
        link.worker = replace(
            worker, restarts=beat.restarts, last_heartbeat=self._clock.now()
        )
        if worker.incarnation is not None and beat.pid != worker.pid:
            # The process that registered is not the one the agent has: it is dead.
            await self.retire(link, beat.state)
        link.is_stale = worker.incarnation is None and beat.incarnation is not None
        if worker.incarnation is None or beat.pid != worker.pid:
            self.set_serving(link, _not_serving(beat.state), beat.error)
            return sorted(beat.held)
        if beat.incarnation != worker.incarnation:
            return sorted(beat.held)
        if beat.state is not link.worker.state or beat.error != link.worker.error:
            self.set_serving(link, beat.state, beat.error)
        await self._check_held(link, beat)
        return self._to_drop(link, beat)

    async def _check_held(self, link: WorkerLink, beat: WorkerBeat) -> None:
        """Orders the worker should have but never got are given out again."""
        said_at = self._clock.monotonic() - beat.age_s
        unheld: list[Task] = []
        for order in list(link.orders.values()):
            if said_at < order.sent_at + self._grace_s:
                continue
            missing = [
                task
                for task_id in order.left
                if (task := self._cluster.tasks.get(task_id)) is not None
                and (task_id, task.attempt) not in beat.held
            ]
            # Twice: one beat may be of the moment between queue and worker.
            order.misses = order.misses + 1 if missing else 0
            if order.misses >= 2:
                unheld += missing
        if unheld:
            log.warning("worker %s never got %d task(s)", link.id, len(unheld))
            await self._dispatch.give_up(unheld)

    def _to_drop(self, link: WorkerLink, beat: WorkerBeat) -> list[tuple[str, int]]:
        link.drops &= beat.held
        for task_id, attempt in beat.held:
            task = self._cluster.tasks.get(task_id)
            is_ours = (
                task is not None
                and task.attempt == attempt
                and task.incarnation == link.worker.incarnation
            )
            if not is_ours:
                link.drops.add((task_id, attempt))
        return sorted(link.drops)


class PendingConnections:
    """Job types for workers by URL, before there is such a worker."""

    def __init__(self) -> None:
        self._awaited: dict[str, tuple[str, ...]] = {}

    def expect(self, url: str, job_type: str) -> None:
        """Connect the worker of this URL to a job type as soon as there is one."""
        key = url.rstrip("/")
        self._awaited[key] = (*self._awaited.pop(key, ()), job_type)
        while len(self._awaited) > _KEPT:
            del self._awaited[next(iter(self._awaited))]

    def awaited(self, url: str | None) -> tuple[str, ...]:
        return self._awaited.get((url or "").rstrip("/"), ())

    def complete(self, spec: WorkerSpec, old: WorkerSpec | None = None) -> WorkerSpec:
        """The spec with the types its worker was connected to, or is awaited for."""
        if spec.url is None:
            return spec
        awaited = self._awaited.pop(spec.url.rstrip("/"), ())
        kept = old.job_types if old and old.url == spec.url else ()
        types = dict.fromkeys((*spec.job_types, *kept, *awaited))
        return replace(spec, job_types=tuple(types))


def _not_serving(state: WorkerState) -> WorkerState:
    """What an agent may say of a worker that has not registered."""
    is_serving = state in (WorkerState.READY, WorkerState.BUSY)
    return WorkerState.STARTING if is_serving else state

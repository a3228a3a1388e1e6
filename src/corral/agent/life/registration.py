"""One registration of this node, from its epoch to its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from corral.agent.life.desired_workers import Desired, Leave
from corral.agent.life.heartbeat import AgentHeartbeat, BeatIntervals, RegistrationEnd
from corral.agent.life.worker_process import WorkerLaunch
from corral.agent.life.workers import NodeWorkers
from corral.agent.watch.gpu_holders import GpuBinder
from corral.agent.watch.sample import Sampler
from corral.relay.manager_link import HttpLink
from corral.wire.agent import DesiredWorkers

LOG = logging.getLogger("corral.agent")


@dataclass(frozen=True, slots=True)
class Registered:
    """Who this node is, and what the manager answered to its registration."""

    node_id: str
    epoch: int
    desired: DesiredWorkers
    pace: BeatIntervals


class NodeNews:
    """Rung by those who watch this node all the time, heard by its registration.

    One registration after the other follows; between two the last one hears it, which
    does no harm: the next tells everything anew.
    """

    def __init__(self) -> None:
        self._on_change: Callable[[], None] | None = None
        self._on_gpus: Callable[[], None] | None = None

    def follow(
        self, on_change: Callable[[], None], on_gpus: Callable[[], None]
    ) -> None:
        """From now on call these, and nobody else."""
        self._on_change, self._on_gpus = on_change, on_gpus

    def ring(self) -> None:
        """Something changed that the manager should know now."""
        if self._on_change is not None:
            self._on_change()

    def ring_gpus(self) -> None:
        """A card changed: workers may have to go, or may come."""
        if self._on_gpus is not None:
            self._on_gpus()


@dataclass(frozen=True, slots=True)
class AgentHooks:
    """What a registration has of its agent: what wakes it, what it hears, its end."""

    wake: threading.Event
    tick_s: float
    news: NodeNews
    leave: Leave


class Session:
    """Workers, beats and the watch on what is desired, under one epoch."""

    def __init__(
        self,
        link: HttpLink,
        told: Registered,
        launch: WorkerLaunch,
        sampler: Sampler,
        agent: AgentHooks,
    ) -> None:
        self._told = told
        self._wake = agent.wake
        self._tick_s = agent.tick_s
        self._was_cut_off = False
        self._beats = AgentHeartbeat(
            link, told.node_id, told.epoch, told.pace, sampler, on_end=agent.wake.set
        )
        if sampler.gpus is not None:
            sampler.gpus.sample_s = told.pace.sample_s
        self._workers = NodeWorkers(launch, self._beats.notify, GpuBinder(sampler.gpus))
        agent.news.follow(self._beats.notify, self._on_gpus)
        self._desired = Desired(
            link,
            told.node_id,
            self._workers.converge,
            agent.leave,
            sampler.gpus.release if sampler.gpus else lambda gpu_id, since: None,
        )

    def run(self, stop: threading.Event, hurry: threading.Event) -> RegistrationEnd:
        """Stay with it until it ends; workers are gone when this returns.

        `stop` lets workers finish what they are at, `hurry` does not.
        """
        self._desired.start(self._told.desired)
        self._beats.start(self._workers, self._desired)
        end = self._watch(stop)
        self._desired.stop()
        if end is RegistrationEnd.STOPPED:
            self._let_finish(hurry)
        self._workers.kill()
        self._beats.stop(farewell=end is RegistrationEnd.STOPPED)
        return end

    def _on_gpus(self) -> None:
        self._workers.recheck()
        self._beats.notify()

    def _watch(self, stop: threading.Event) -> RegistrationEnd:
        while not stop.is_set():
            self._wake.wait(self._tick_s)
            self._wake.clear()
            if self._beats.end is not None:
                return self._beats.end
            self._workers.tick()
            if self._is_fenced():
                return RegistrationEnd.FENCED
        return RegistrationEnd.STOPPED

    def _is_fenced(self) -> bool:
        """Tell workers how long they have been cut off; too long ends it all."""
        cut_off_s = self._beats.cut_off_s()
        if cut_off_s or self._was_cut_off:
            self._workers.tell({"cut_off_s": round(cut_off_s, 1)})
        self._was_cut_off = cut_off_s > 0
        if cut_off_s <= self._told.pace.fence_after_s:
            return False
        LOG.warning("cut off for %.0f s: stopping all workers", cut_off_s)
        return True

    def _let_finish(self, hurry: threading.Event) -> None:
        self._workers.stop()
        # Beats go on, so that what is being finished keeps its lease.
        while not self._workers.is_empty and not hurry.is_set():
            self._wake.wait(0.2)
            self._wake.clear()
            self._workers.tick()

"""Beats to the manager: on time, at once on news, and for ever through outages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from corral.agent.config import AgentConfig
from corral.agent.life.desired_workers import Desired
from corral.agent.life.workers import NodeWorkers
from corral.agent.link.identity import is_refusal
from corral.agent.watch.sample import Sampler
from corral.core.backoff import Backoff
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import MachineReading
from corral.errors import Conflict, CorralError
from corral.process.keep_alive import Tries
from corral.relay.manager_link import HttpLink
from corral.wire.agent import Beat, BeatAnswer, NodeAdmission, WorkerBeat

LOG = logging.getLogger("corral.agent")
# News that comes in a burst, as when many workers start, shares a beat.
_GATHER_S = 0.02
_SAY_EVERY_S = 30.0


class RegistrationEnd(StrEnum):
    """Why a registration is over."""

    STOPPED = "stopped"
    CONFLICT = "conflict"
    REFUSED = "refused"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class BeatIntervals:
    beat_s: float
    sample_s: float
    fence_after_s: float

    @classmethod
    def of(cls, told: NodeAdmission, config: AgentConfig) -> BeatIntervals:
        """The manager's word, unless the configuration has one."""
        pace = cls(told.beat_s, told.sample_s, told.fence_after_s)
        if config.beat_s is not None:
            pace = replace(pace, beat_s=config.beat_s)
        if config.sample_s is not None:
            pace = replace(pace, sample_s=config.sample_s)
        if config.fence_after_s is not None:
            pace = replace(pace, fence_after_s=config.fence_after_s)
        return pace


class AgentHeartbeat:
    """The beats of one registration; `end` says why they are over, when they are."""

    def __init__(
        self,
        link: HttpLink,
        node_id: str,
        epoch: int,
        pace: BeatIntervals,
        sampler: Sampler,
        on_end: Callable[[], None],
    ) -> None:
        self._link = link
        self._path = f"/nodes/{node_id}/beat"
        self._epoch = epoch
        self._pace = pace
        self._sampler = sampler
        self._on_end = on_end
        self._seq = 0
        self._bell = threading.Condition()
        self._news = False
        self._stopped = False
        self._sampled_at = 0.0
        self._gpus_told = 0
        self._silent_until = 0.0
        self._failing_since: float | None = None
        # Counted from the sending: the manager's lease started no earlier.
        self._good_at = time.monotonic()
        self.end: RegistrationEnd | None = None

    def start(self, workers: NodeWorkers, desired: Desired) -> None:
        self._workers, self._desired = workers, desired
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Something changed that the manager should know now."""
        with self._bell:
            self._news = True
            self._bell.notify()

    def cut_off_s(self) -> float:
        """Seconds since the manager last heard us; 0 while beats are on time."""
        gone = time.monotonic() - self._good_at
        return gone if gone > self._pace.beat_s * 1.5 else 0.0

    def stop(self, *, farewell: bool) -> None:
        """End the beats; with `farewell` a last one says that no worker is left."""
        with self._bell:
            self._stopped = True
            self._bell.notify()
        if not farewell:
            return
        self._thread.join(timeout=12.0)
        try:
            self._send([], None)
        except CorralError as error:
            LOG.warning("could not take leave of the manager: %s", error.message)

    def _run(self) -> None:
        tries = Tries(Backoff(0.5, self._pace.beat_s))
        delay = 0.0
        while self._wait(delay, at_once=tries.failures == 0):
            try:
                self._beat()
            except CorralError as error:
                if self._is_over(error):
                    return
                self._say_failing(error)
                delay = tries.next_s()
            except Exception:
                LOG.exception("a fault in a beat; the next one comes")
                delay = tries.next_s()
            else:
                self._say_recovered()
                tries.reset()
                delay = self._pace.beat_s

    def _wait(self, delay: float, *, at_once: bool) -> bool:
        """Until the next beat is due; news shortens it unless beats are failing."""
        due = time.monotonic() + delay
        with self._bell:
            while not self._stopped and not (self._news and at_once):
                left = due - time.monotonic()
                if left <= 0:
                    break
                self._bell.wait(left)
            if self._news and not self._stopped:
                self._bell.wait_for(lambda: self._stopped, _GATHER_S)
            self._news = False
            return not self._stopped

    def _beat(self) -> None:
        now = time.monotonic()
        gpus = self._sampler.read_gpus(self._gpus_told)
        answer = self._send(
            self._workers.entries(), self._sample(now), gpus[1] if gpus else None
        )
        if gpus is not None:
            self._gpus_told = gpus[0]
        self._good_at = now
        self._workers.drop(answer.drop)
        self._desired.hint(answer.desired_version)

    def _sample(self, now: float) -> MachineReading | None:
        if self._sampled_at and now - self._sampled_at < self._pace.sample_s:
            return None
        self._sampled_at = now
        try:
            return self._sampler.read()
        except OSError as error:
            # A disk that is away must not make the whole node look dead.
            LOG.warning("cannot sample this machine: %s", error)
            return None

    def _send(
        self,
        workers: list[WorkerBeat],
        sample: MachineReading | None,
        gpus: list[Gpu] | None = None,
    ) -> BeatAnswer:
        self._seq += 1
        body = Beat(
            epoch=self._epoch,
            seq=self._seq,
            clock=time.time(),
            owner=self._sampler.owner.word() if self._sampler.owner else None,
            peer=self._sampler.peer.word() if self._sampler.peer else None,
            workers=workers,
            breakers=self._workers.breakers(),
            sample=sample,
            gpus=gpus,
        )
        return self._link.post(self._path, body, BeatAnswer)

    def _is_over(self, error: CorralError) -> bool:
        if isinstance(error, Conflict):
            self.end = RegistrationEnd.CONFLICT
        elif is_refusal(error):
            self.end = RegistrationEnd.REFUSED
        else:
            return False
        LOG.warning("the manager ended this registration: %s", error.message)
        self._on_end()
        return True

    def _say_failing(self, error: CorralError) -> None:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now >= self._silent_until:
            self._silent_until = now + _SAY_EVERY_S
            LOG.warning("%s; keeps trying", error.message)

    def _say_recovered(self) -> None:
        if self._failing_since is not None:
            gone = time.monotonic() - self._failing_since
            LOG.info("the manager is back after %.1f s", gone)
            self._failing_since, self._silent_until = None, 0.0

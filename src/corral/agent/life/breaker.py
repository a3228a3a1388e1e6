"""The breakers of this node: one for each kind of worker that is started on it.

Decides who may start and when; starts, watches and stops nothing itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable

from corral.agent.link.status_line import ObservedWorker
from corral.core.nodes.breaker import (
    Breaker,
    BreakerPolicy,
    BreakerReport,
    BreakerState,
)
from corral.wire.agent import DesiredWorker

LOG = logging.getLogger("corral.agent")
_KEY_DIGITS = 8


def key_of(worker: DesiredWorker) -> str:
    """What it has in common with others that would fail for the same reason."""
    if worker.worker_type:
        return worker.worker_type
    if not worker.environment:
        return worker.worker_class
    text = json.dumps(worker.environment, sort_keys=True).encode()
    return f"{worker.worker_class}@{hashlib.sha256(text).hexdigest()[:_KEY_DIGITS]}"


class Breakers:
    """All of one agent, from its start to its end; safe to use from any thread.

    `on_change` is called, outside any lock, when one opens, half-opens or closes.
    """

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._policy = policy or BreakerPolicy()
        self._bell = threading.Condition()
        self._kept: dict[str, Breaker] = {}
        self._generations: dict[str, int] = {}
        self._wanted: set[str] = set()
        self._on_change = on_change

    def heed(self, workers: Iterable[DesiredWorker]) -> None:
        """What should run now: a worker that is to start anew resets its breaker.

        The wish is the worker's `generation`, which the manager keeps: it outlives
        polls that were missed and registrations that ended.
        """
        known, wanted = self._generations, list(workers)
        self._generations = {w.worker_id: w.generation for w in wanted}
        self._wanted = {key_of(worker) for worker in wanted}
        for worker in wanted:
            generation = worker.generation
            if generation > known.get(worker.worker_id, generation):
                self.change(key_of(worker), lambda breaker: breaker.reset())

    def reports(self) -> list[BreakerReport]:
        """Those that are not closed; one that nobody waits for ends with its time."""
        now = time.monotonic()
        with self._bell:
            for key, breaker in list(self._kept.items()):
                if key not in self._wanted and breaker.allows(now):
                    del self._kept[key]
            kept = sorted(self._kept.items())
        return [b.report(key, now) for key, b in kept if not b.is_closed]

    def get(self, key: str) -> Breaker:
        with self._bell:
            return self._kept.get(key) or Breaker(self._policy)

    def change(self, key: str, make: Callable[[Breaker], Breaker]) -> None:
        """Put what `make` makes of a breaker in its place, and tell who waits."""
        with self._bell:
            before = self.get(key)
            after = make(before)
            if after == before:
                return
            if after == before.reset():
                self._kept.pop(key, None)
            else:
                self._kept[key] = after
            self._bell.notify_all()
        if after.state is not before.state:
            _say(key, after)
            self._on_change()

    def begin(self, key: str, who: str, delay_s: float, over: threading.Event) -> bool:
        """Wait until `who` may start; false when `over` was set before, see `ring`.

        The caller's own delay and the breaker's cool-down run side by side: they
        never add up.
        """
        due = time.monotonic() + delay_s
        with self._bell:
            while not over.is_set():
                left_s = self._left_s(key, due)
                if left_s is not None and left_s <= 0:
                    break
                self._bell.wait(left_s)
            else:
                return False
            breaker = self.get(key)
            if breaker.is_closed:
                return True
            self._kept[key] = breaker = breaker.begin(time.monotonic(), who)
        _say(key, breaker)
        self._on_change()
        return True

    def ring(self) -> None:
        """Let those who wait look whether it is over."""
        with self._bell:
            self._bell.notify_all()

    def _left_s(self, key: str, due: float) -> float | None:
        """Seconds until somebody may start; None while another is the probe."""
        breaker, now = self.get(key), time.monotonic()
        if breaker.state is BreakerState.HALF_OPEN:
            return None
        return max(due - now, breaker.next_probe_s(now))


class WorkerBreaker:
    """One worker's part in the breaker of its kind.

    A start that fails counts, and a supervisor's death unless it had finished a task:
    what does work may die once in a while. A task's own failure counts for nothing.
    """

    def __init__(
        self, breakers: Breakers, worker: DesiredWorker, steady_s: float
    ) -> None:
        self._breakers = breakers
        self._key = key_of(worker)
        self._who = worker.worker_id
        self._steady_s = steady_s
        self._is_failing = False
        self._serving_since: float | None = None

    @property
    def is_closed(self) -> bool:
        return self._breakers.get(self._key).is_closed

    def wait(self, delay_s: float, over: threading.Event) -> bool:
        """Until this worker may be started; false when it is over before."""
        may = self._breakers.begin(self._key, self._who, delay_s, over)
        self._is_failing, self._serving_since = False, None
        return may

    def heard(self, before: ObservedWorker, word: ObservedWorker) -> None:
        """Judge what its supervisor counted since its last word."""
        for _ in range(word.failures - before.failures):
            self._fail(word.fault or word.error or "it did not say why")
        if word.finished > before.finished:
            self._succeed()

    def died(self, word: ObservedWorker, fate: str) -> None:
        """Its supervisor has ended, unasked."""
        if not word.finished:
            self._fail(f"the worker {fate}")

    def tick(self, word: ObservedWorker, now: float) -> None:
        """A worker that stays ready for a while does well, even without a task."""
        if not word.is_serving:
            self._serving_since = None
        elif self._serving_since is None:
            self._serving_since = now
        elif now - self._serving_since >= self._steady_s:
            self._succeed()

    def must_halt(self, word: ObservedWorker) -> bool:
        """Is it to be stopped until its next turn? What runs well stays."""
        breaker = self._breakers.get(self._key)
        if breaker.is_closed or breaker.probe == self._who:
            return False
        return self._is_failing or not word.is_serving

    def report(self, word: ObservedWorker) -> BreakerReport | None:
        """The breaker, when it is why this worker does not serve."""
        breaker = self._breakers.get(self._key)
        if breaker.is_closed or word.is_serving:
            return None
        return breaker.report(self._key, time.monotonic())

    def ring(self) -> None:
        self._breakers.ring()

    def leave(self) -> None:
        """It has ended; a probe that did not decide leaves its turn to another."""
        self._breakers.change(self._key, lambda b: b.abandon(self._who))

    def _fail(self, error: str) -> None:
        self._is_failing, self._serving_since = True, None
        now = time.monotonic()
        self._breakers.change(self._key, lambda b: b.fail(now, self._who, error))

    def _succeed(self) -> None:
        self._is_failing = False
        self._breakers.change(self._key, lambda b: b.succeed(self._who))


def _say(key: str, breaker: Breaker) -> None:
    if breaker.is_closed:
        LOG.info("the breaker of %s is closed", key)
    else:
        LOG.warning("%s: %s", key, breaker.report(key, time.monotonic()).text)

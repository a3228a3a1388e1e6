"""Watches what should run on this node, by long poll, and has it done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime

from corral.core.backoff import Backoff
from corral.errors import CorralError
from corral.process.keep_alive import Tries
from corral.relay.manager_link import HttpLink
from corral.wire.agent import DesiredWorker, DesiredWorkers

LOG = logging.getLogger("corral.agent")
WAIT_S = 25.0
Converge = Callable[[list[DesiredWorker]], None]
Leave = Callable[[bool], None]
Release = Callable[[str, datetime], None]


class Desired:
    """The latest desired state of one registration, handed on when it changes."""

    def __init__(
        self,
        link: HttpLink,
        node_id: str,
        converge: Converge,
        leave: Leave = lambda is_forgotten: None,
        release_gpu: Release = lambda gpu_id, since: None,
    ) -> None:
        self._link = link
        self._leave = leave
        self._release_gpu = release_gpu
        self._path = f"/nodes/{node_id}/desired"
        self._converge = converge
        self._lock = threading.Lock()
        self._version: int | None = None
        self._applied_at = 0.0
        self._stop = threading.Event()

    def start(self, first: DesiredWorkers) -> None:
        """Apply what the registration brought, then watch."""
        self._apply(first, time.monotonic())
        threading.Thread(target=self._watch, name="desired", daemon=True).start()

    def stop(self) -> None:
        """Nothing is applied any more; a poll under way ends by itself."""
        with self._lock:
            self._stop.set()

    def hint(self, version: int) -> None:
        """A beat's answer names the newest version: fetch it if it is not ours.

        Covers a poll that waits at a manager that has forgotten it.
        """
        if version != self._version:
            self._fetch(wait_s=0.0)

    def _watch(self) -> None:
        tries = Tries(Backoff(0.5, 10.0))
        while not self._stop.is_set():
            try:
                self._fetch(wait_s=WAIT_S)
                tries.reset()
            except CorralError as error:
                # The heartbeat tells the user about an outage; here it is no news.
                LOG.debug("cannot ask what should run: %s", error)
                self._stop.wait(tries.next_s())
            except Exception:
                LOG.exception("cannot follow what should run")
                self._stop.wait(tries.next_s())

    def _fetch(self, wait_s: float) -> None:
        began = time.monotonic()
        params = {"since": self._version, "wait": wait_s}
        told = self._link.get(self._path, params, DesiredWorkers, wait_s=wait_s)
        self._apply(told, began)

    def _apply(self, told: DesiredWorkers, began: float) -> None:
        version = told.version
        with self._lock:
            if self._stop.is_set() or version == self._version:
                return
            # Answers of two requests may cross. A lower version is believed only
            # when it was asked for after the last one came: the manager that counts
            # may have started over.
            late = began < self._applied_at
            if self._version is not None and version < self._version and late:
                return
            self._version, self._applied_at = version, time.monotonic()
            self._converge(told.workers)
        for release in told.gpu_releases:
            self._release_gpu(release.gpu_id, release.since)
        if told.leave:
            LOG.info("somebody asked this node to stop")
            self._leave(told.forget)

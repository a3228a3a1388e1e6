"""All servers of one model: requests go to the least busy of those that are up."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from typing import Any

from corral.worker.base import Failure
from corral.worker.server.errors import NotServed
from corral.worker.server.gpu_memory import cards_mb, processes_mb
from corral.worker.server.http_call import Exchange, Gone
from corral.worker.server.replica import Replica
from corral.worker.server.resolve import ServerSpec, cards_in

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request before it is known who gets it. `make` takes the server's own name of
    the model, `is_wanted` says whether somebody still waits for the answer.
    """

    path: str
    make: Callable[[str], Mapping[str, Any]]
    is_wanted: Callable[[], bool]


class ReplicaGroup:
    """Opened once and closed once."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self._changed = threading.Condition()
        self._count = itertools.count(1)
        self._grown_mb: float | None = None
        self._replicas = [
            Replica(spec, number, self._changed) for number in range(spec.replicas)
        ]

    def open(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Start all of them, and wait until all answer.

        Raises:
            Failure: one does not, or nobody wants them any more; none is left then.
        """
        cards = [] if self.spec.url else cards_in(os.environ)
        before_mb = cards_mb(cards)
        starting = {replica.start() for replica in self._replicas}
        try:
            while starting:
                done, starting = wait(starting, _LOOK_S, FIRST_COMPLETED)
                for first in done:
                    first.result()
                if starting and not is_wanted():
                    raise Failure("cancelled", kind="cancelled")
        except Failure:
            with contextlib.suppress(Failure):  # the first is the one to tell
                self.close()
            raise
        if before_mb is not None and (after_mb := cards_mb(cards)) is not None:
            self._grown_mb = max(after_mb - before_mb, 0.0)

    def close(self) -> None:
        """End all of them.

        Raises:
            Failure: something of them does not end.
        """
        faults: list[Failure] = []

        def end(replica: Replica) -> None:
            try:
                replica.close()
            except Failure as error:
                faults.append(error)

        threads = [threading.Thread(target=end, args=(r,)) for r in self._replicas]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]

    @contextlib.contextmanager
    def exchange(self, ask: ServerRequest) -> Iterator[Exchange]:
        """A request to whoever is up and least busy, once somebody is.

        Raises:
            NotServed: nobody comes up.
            Gone: nobody wants the answer any more.
        """
        replica, exchange = self._take(ask)
        try:
            yield exchange
        except Gone:
            if not exchange.is_aborted:
                replica.suspect()
            raise
        finally:
            with self._changed:
                replica.standing.live.discard(exchange)

    def memory_mb(self) -> float | None:
        """What they take on the cards: as the driver tells of their processes, else
        what their start has added there, else what the definition says.
        """
        pids = {
            pid
            for replica in self._replicas
            if replica.server is not None
            for pid in replica.server.processes()
        }
        measured = processes_mb(pids) if pids else None
        found = self._grown_mb if measured is None else measured
        return self.spec.size_mb if found is None else found

    def describe(self) -> list[dict[str, Any]]:
        """How each of them is, for people to read."""
        with self._changed:
            return [
                {
                    "is_up": (standing := replica.standing).address is not None,
                    "port": standing.address.port if standing.address else None,
                    "pid": replica.server.pid if replica.server else None,
                    "busy": len(standing.live),
                    "starts": standing.starts,
                }
                for replica in self._replicas
            ]

    def _take(self, ask: ServerRequest) -> tuple[Replica, Exchange]:
        until = time.monotonic() + self.spec.start_timeout_s
        with self._changed:
            while True:
                if not ask.is_wanted():
                    raise Gone("nobody wants the answer", was_asked=False)
                if (replica := self._least_busy()) is not None:
                    break
                if time.monotonic() > until:
                    raise NotServed(f"no server of model {self.spec.name} comes up")
                self._changed.wait(_LOOK_S)
            standing = replica.standing
            assert standing.address is not None
            body = ask.make(standing.model)
            exchange = Exchange(standing.address, ask.path, body)
            standing.live.add(exchange)
            standing.last_used = next(self._count)
            return replica, exchange

    def _least_busy(self) -> Replica | None:
        up = [r for r in self._replicas if r.standing.address is not None]
        return min(
            up,
            key=lambda r: (len(r.standing.live), r.standing.last_used),
            default=None,
        )

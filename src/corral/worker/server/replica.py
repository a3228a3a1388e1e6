"""One server that stays up: started, watched, and started again when it dies."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from corral.core.backoff import Backoff
from corral.process.keep_alive import Restarts
from corral.worker.base import Failure
from corral.worker.server import http_call
from corral.worker.server.errors import NotServed, start_failure
from corral.worker.server.http_call import Exchange, ServerAddress
from corral.worker.server.process import ServerProcess
from corral.worker.server.resolve import ServerSpec

LOOK_S = 5.0
_DOWN_LOOK_S = 0.2
_STARTING_LOOK_S = 0.1
_RESTARTS = Backoff(0.2, 30.0)
# Up for so long, its next death is not the last one's sequel.
_STEADY_S = 60.0
_TRIES = 3
_IN_USE = "in use"


@dataclass(slots=True)
class ReplicaStatus:
    """What its fleet knows of a replica, under the fleet's lock.

    `address` is where it answers, None while it does not; `live` what is asked now.
    """

    address: ServerAddress | None = None
    model: str = ""
    live: set[Exchange] = field(default_factory=set)
    last_used: int = 0
    starts: int = 0


class Replica:
    """Kept up by a thread of its own from `start` until `close`."""

    def __init__(
        self, spec: ServerSpec, number: int, changed: threading.Condition
    ) -> None:
        self.standing = ReplicaStatus()
        self.server: ServerProcess | None = None
        self._spec = spec
        self._number = number
        self._changed = changed
        self._wake = threading.Event()
        self._is_closing = False
        self._is_given_up = False
        self._restarts = Restarts(_RESTARTS, steady_s=_STEADY_S)
        self._first: Future[None] = Future()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def start(self) -> Future[None]:
        """Done when it answers for the first time; its failure is not tried again."""
        self._thread.start()
        return self._first

    def suspect(self) -> None:
        """It did not answer: nobody is sent there until it was looked at."""
        self._stand(None)
        self._wake.set()

    def close(self) -> None:
        """End it.

        Raises:
            Failure: something of it does not end.
        """
        self._is_closing = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self.server is not None:
            self.server.stop()

    def _keep(self) -> None:
        self._restarts.keep(self._live, self._rest)
        if self._starting:
            self._first.set_exception(NotServed("it was ended before it had started"))

    def _live(self) -> float:
        """From a start to its end; the pause before the next one."""
        try:
            self._bring_up()
        except Failure as error:
            self._complain(str(error))
            if self._starting:
                self._end_server()
                self._first.set_exception(error)
                self._is_given_up = True
                return 0.0
        else:
            if self._starting:
                self._first.set_result(None)
            self._watch()
        self._drop()
        self._end_server()
        return self._restarts.end()

    @property
    def _starting(self) -> bool:
        return not self._first.done()

    def _bring_up(self) -> None:
        """Start it and wait until it answers; raises Failure."""
        for left in reversed(range(_TRIES)):
            address = self._begin()
            try:
                self._await(address)
            except Failure:
                taken = self.server is not None and _IN_USE in self.server.last_words
                if not (taken and left):
                    raise
                # Somebody took the port before the server did.
                self._end_server()
                continue
            self.standing.starts += 1
            self._stand(address, _model_at(address, self._spec))
            return

    def _begin(self) -> ServerAddress:
        spec = self._spec
        if spec.url is not None:
            return ServerAddress.of_url(spec.url, spec.key)
        port = _free_port()
        self._wake.clear()
        self.server = ServerProcess(
            spec.filled(port),
            spec.environment_of(self._number),
            spec.stop_timeout_s,
            self._wake.set,
        )
        return ServerAddress("127.0.0.1", port)

    def _await(self, address: ServerAddress) -> None:
        until = time.monotonic() + self._spec.start_timeout_s
        name = self._spec.name
        while not _is_well(address):
            server = self.server
            if server is not None and server.has_ended:
                raise start_failure(name, server.end or "ended", server.last_words)
            if self._is_closing:
                raise NotServed(f"the server of model {name} was ended")
            if time.monotonic() > until:
                told = f"did not answer within {self._spec.start_timeout_s:g} s"
                raise start_failure(name, told, server.last_words if server else "")
            self._wake.wait(_STARTING_LOOK_S)
            self._wake.clear()

    def _watch(self) -> None:
        """Until it has ended, has to be ended, or the replica is closed."""
        address, answered = self.standing.address, time.monotonic()
        hung_s = self._spec.hung_timeout_s
        while address is not None and not self._is_closing:
            server = self.server
            if server is not None and server.has_ended:
                self._complain(f"{server.end}; it is started again")
                return
            is_up = self.standing.address is not None
            self._wake.wait(min(LOOK_S, hung_s) if is_up else _DOWN_LOOK_S)
            self._wake.clear()
            if _is_well(address, min(http_call.PROBE_S, hung_s)):
                answered = time.monotonic()
                self._stand(address)
            elif time.monotonic() - answered > hung_s:
                self._complain("does not answer any more")
                self._drop()
                if server is not None:
                    return
            elif server is None:
                self._stand(None)

    def _stand(self, address: ServerAddress | None, model: str = "") -> None:
        """Say whether, and where, it can be asked."""
        with self._changed:
            self.standing.address = address
            self.standing.model = model or self.standing.model
            self._changed.notify_all()

    def _drop(self) -> None:
        """Nobody gets an answer from it any more."""
        with self._changed:
            self.standing.address = None
            lost = list(self.standing.live)
        for exchange in lost:
            exchange.abort()

    def _end_server(self) -> None:
        server = self.server
        if server is None:
            return
        if not self._is_closing:
            server.kill()
        try:
            server.stop()
        except Failure as error:
            self._complain(str(error))

    def _rest(self, pause_s: float) -> bool:
        """Let a pause go by; is it to be started after that?"""
        until = time.monotonic() + pause_s
        while not self._is_closing and (left := until - time.monotonic()) > 0:
            self._wake.clear()
            if not self._is_closing:
                self._wake.wait(left)
        return not (self._is_closing or self._is_given_up)

    def _complain(self, text: str) -> None:
        """In the log of the worker: it concerns no task."""
        line = f"server {self._number} of model {self._spec.name}: {text}\n"
        os.write(2, line.encode("utf-8", "replace"))


def _is_well(address: ServerAddress, timeout_s: float = http_call.PROBE_S) -> bool:
    status, _ = http_call.ask(address, "/health", timeout_s)
    if status in (404, 405):
        status, _ = http_call.ask(address, "/v1/models", timeout_s)
    return status == 200


def _model_at(address: ServerAddress, spec: ServerSpec) -> str:
    """The name that the server itself has for the model."""
    if spec.served_name is not None:
        return spec.served_name
    status, body = http_call.ask(address, "/v1/models")
    try:
        names = [str(row["id"]) for row in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        names = []
    is_other = status == 200 and len(names) == 1
    return names[0] if is_other else spec.name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""What a worker says of itself, and what its agent says in its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.worker import WorkerState
from corral.process.spawn import memory_mb
from corral.wire.agent import WorkerBeat

_SERVING = frozenset({WorkerState.READY, WorkerState.BUSY})


@dataclass(frozen=True, slots=True)
class ObservedWorker:
    """`pid` and `restarts` are ours, the rest is the worker's own word.

    `facts` is what else it says of itself, passed on as it is. `failures` counts
    what went wrong with its runners, `fault` was the last of it, `finished` counts
    what they survived.
    """

    state: WorkerState = WorkerState.STARTING
    incarnation: str | None = None
    error: str | None = None
    held: tuple[tuple[str, int], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    pid: int | None = None
    restarts: int = 0
    failures: int = 0
    fault: str | None = None
    finished: int = 0

    @property
    def is_serving(self) -> bool:
        return self.state in _SERVING

    def heard(self, line: bytes) -> ObservedWorker:
        """This word, changed by one status line of the worker.

        Raises:
            ValueError: when the line is not one.
        """
        try:
            told = json.loads(line)
            return replace(
                self,
                state=WorkerState(told["state"]),
                incarnation=_text(told.get("incarnation")),
                error=_text(told.get("error")),
                held=tuple((str(t), int(a)) for t, a in told.get("held") or ()),
                facts=dict(told.get("facts") or {}),
                failures=int(told.get("failures") or 0),
                fault=_text(told.get("fault")),
                finished=int(told.get("finished") or 0),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not a status line") from error

    def started(self, pid: int) -> ObservedWorker:
        """A new process; the last error stays until it has said something itself."""
        return ObservedWorker(pid=pid, restarts=self.restarts, error=self.error)

    def died(self, fate: str, *, broken: bool) -> ObservedWorker:
        """Gone, holding nothing; the incarnation names what is gone."""
        return replace(
            self,
            state=WorkerState.ERROR if broken else WorkerState.LOST,
            error=f"the worker {fate}",
            held=(),
            pid=None,
            restarts=self.restarts + 1,
            failures=0,
            finished=0,
        )

    def is_news(self, before: ObservedWorker) -> bool:
        """Is the change worth a beat of its own? Coming and going of tasks is not."""
        return (
            self.pid != before.pid
            or self.incarnation != before.incarnation
            or self.error != before.error
            or self.facts != before.facts
            or (
                self.state is not before.state
                and not {self.state, before.state} <= _SERVING
            )
        )

    def entry(
        self,
        worker_id: str,
        age_s: float,
        facts: Mapping[str, Any],
        breaker: BreakerReport | None = None,
    ) -> WorkerBeat:
        """One worker in a heartbeat; `facts` are ours, beside its own.

        `breaker` is what keeps it from serving.
        """
        return WorkerBeat(
            worker_id=worker_id,
            incarnation=self.incarnation,
            state=WorkerState.ERROR if breaker else self.state,
            pid=self.pid,
            error=breaker.text if breaker else self.error,
            breaker=breaker.key if breaker else None,
            restarts=self.restarts,
            age_s=round(max(0.0, age_s), 3),
            memory_mb=memory_mb(self.pid),
            held=frozenset(self.held),
            facts={**self.facts, **facts},
        )


def line_of(message: Mapping[str, Any]) -> bytes:
    """One message for a worker's stdin."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _text(value: Any) -> str | None:
    return None if value is None else str(value)

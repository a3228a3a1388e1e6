"""Alerts: looks at the cluster every few seconds, raises what is wrong and lasts,
and resolves it when it is over.

Alerts are rows of the events, so that a restart goes on with those that are open.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from corral.core.insight.alert import AlertChange, Key, WatchedFinding, follow
from corral.core.insight.event import ALERT, Event, EventQuery
from corral.core.insight.health import (
    ClusterSnapshot,
    EndedAttempts,
    Finding,
    Health,
    NodeReading,
    OpenBreaker,
    Severity,
    Thresholds,
    health_of,
)
from corral.core.insight.health_rule import STORE_DOWN, judge
from corral.core.nodes.worker import WorkerState
from corral.core.tasks.job_type import OWN_TYPES
from corral.errors import Conflict, NotFound, StoreUnavailable
from corral.manager.cluster.state import NodeLink
from corral.manager.context import ManagerContext

log = logging.getLogger(__name__)
PERIOD_S = 2.0
WINDOW_S = 300.0
"""How far back ended attempts count."""
WORSENED, RESOLVED = "alert_worsened", "alert_resolved"
_OPEN = EventQuery(is_open=True)
_MOST_OPEN = 10_000
_LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
    Severity.CRITICAL: logging.CRITICAL,
}


@dataclass(frozen=True, slots=True)
class AlertConfig:
    """`after_s` is how long something must be wrong; `webhooks` are told of alerts."""

    limits: Thresholds = field(default_factory=Thresholds)
    after_s: float = 60.0
    webhooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ActiveFinding:
    """Something that is wrong now, with its alert where there is one."""

    finding: Finding
    alert_id: int | None = None
    is_acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class HealthReport:
    status: Health
    reasons: tuple[ActiveFinding, ...]
    checked_at: datetime


class HealthSnapshot:
    """`take` it again and again; it looks at nodes and workers, never at tasks."""

    def __init__(self, ctx: ManagerContext) -> None:
        self._cluster = ctx.cluster
        self._clock = ctx.clock
        self._began = ctx.clock.monotonic()
        self._counted: dict[str, tuple[int, int]] = {}
        self._ended: deque[tuple[float, int, int]] = deque()

    def take(self) -> ClusterSnapshot:
        cluster = self._cluster
        workers = [link.worker for link in cluster.workers.values()]
        waiting = cluster.scheduler.waiting_count()
        return ClusterSnapshot(
            nodes=tuple(_reading(link) for link in cluster.nodes.values()),
            breakers=tuple(
                OpenBreaker(link.node.id, breaker.key, breaker.text)
                for link in cluster.nodes.values()
                for breaker in link.breakers or ()
            ),
            broken=tuple(w for w in workers if w.state is WorkerState.ERROR),
            waiting=waiting,
            unserved=self._unserved() if waiting else {},
            ended=self._count(),
            is_mass_loss=cluster.is_mass_loss,
            is_engine_up=cluster.is_engine_up,
            audit_fault=cluster.audit_fault,
        )

    def _unserved(self) -> dict[str, int]:
        cluster = self._cluster
        served = {
            job_type
            for link in cluster.workers.values()
            if cluster.is_serving(link.worker)
            for job_type in link.worker.spec.job_types
        }
        for link in cluster.inside.values():
            served |= cluster.types_for(link.worker.spec.name)
        served |= OWN_TYPES
        waiting = cluster.scheduler.waiting_by_type()
        return {name: n for name, n in waiting.items() if n and name not in served}

    def _count(self) -> EndedAttempts:
        """Attempts that ended since the last look, and all of the last minutes."""
        now, completed, failed = self._clock.monotonic(), 0, 0
        counted: dict[str, tuple[int, int]] = {}
        for link in (*self._cluster.workers.values(), *self._cluster.inside.values()):
            ran_before, failed_before = self._counted.get(link.id, (0, 0))
            completed += max(0, link.ran - ran_before)
            failed += max(0, link.failed - failed_before)
            counted[link.id] = (link.ran, link.failed)
        self._counted = counted
        if completed or failed:
            self._ended.append((now, completed + failed, failed))
        while self._ended and self._ended[0][0] <= now - WINDOW_S:
            self._ended.popleft()
        return EndedAttempts(
            sum(count for _, count, _ in self._ended),
            sum(bad for _, _, bad in self._ended),
            is_full=now - self._began >= WINDOW_S,
        )


class AlertWatch:
    """`step` every `PERIOD_S`; the first one goes on with what was open before."""

    def __init__(
        self,
        ctx: ManagerContext,
        config: AlertConfig,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = ctx.store
        self._clock = ctx.clock
        self._record = ctx.record
        self._picture = HealthSnapshot(ctx)
        self._config = config
        self._on_news = on_news
        self._watches: Mapping[Key, WatchedFinding] = {}
        self._rows: dict[Key, Event] = {}
        self._looking = asyncio.Lock()
        self._is_unsure = True
        self._is_store_down = False
        self._checked_at = ctx.clock.now()

    @property
    def limits(self) -> Thresholds:
        return self._config.limits

    def health(self) -> HealthReport:
        """As of the last look: the worst of what is wrong and has lasted."""
        reasons = [ActiveFinding(STORE_DOWN)] if self._is_store_down else []
        for key, watch in self._watches.items():
            if watch.is_open:
                reasons.append(_standing(watch.finding, self._rows.get(key)))
        reasons.sort(key=lambda r: (-r.finding.severity.rank, *r.finding.key))
        status = health_of(reason.finding for reason in reasons)
        return HealthReport(status, tuple(reasons), self._checked_at)

    def open_alerts(self) -> list[Event]:
        """Newest first."""
        return sorted(self._rows.values(), key=lambda row: -row.seq)

    async def find(
        self, severities: Sequence[Severity], limit: int, *, is_open: bool
    ) -> Sequence[Event]:
        """Alerts of these severities, newest first: those that stand, or all."""
        if not is_open:
            where = EventQuery(severities=tuple(severities))
            return await self._store.events.alerts(where, limit)
        rows = self.open_alerts()
        return [row for row in rows if row.severity in severities][:limit]

    async def acknowledge(self, seq: int, by: str, note: str) -> Event:
        """Somebody looks after it: nothing more is told of it until it is over.

        Raises:
            NotFound, Conflict: no such alert, or it is over.
        """
        now = self._clock.now()
        row = await self._store.events.acknowledge_alert(seq, by, now, note)
        if row is None:
            raise NotFound(f"no alert {seq}", alert_id=seq)
        if row.resolved_at is not None:
            raise Conflict(f"alert {seq} is over", alert_id=seq)
        known = self._rows.get(_key(row))
        if known is not None and known.seq == seq:
            self._rows[_key(row)] = row
        if known is None or known.acknowledged_at is None:
            await self._record([_acknowledged(row, now)])
        return row

    # the loop ------------------------------------------------------------------
    async def step(self) -> None:
        """Look once: raise, worsen, resolve."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        if not await self._is_store_up():
            return
        snapshot = self._picture.take()
        change = follow(
            self._watches,
            judge(snapshot, self._config.limits),
            self._clock.monotonic(),
            self._config.after_s,
            snapshot.unheard,
        )
        now = self._clock.now()
        if change.is_news:
            # Until it is read again: an answer that is lost may have been written.
            self._is_unsure = True
            await self._write(change, now)
            await self._reload()
            self._on_news()
        self._watches = change.watches
        self._checked_at = now

    async def _is_store_up(self) -> bool:
        try:
            if self._is_unsure:
                await self._catch_up()
            else:
                await self._store.ping()
        except StoreUnavailable as error:
            if not self._is_store_down:
                log.critical("%s: %s", STORE_DOWN.title, error.message)
            self._is_store_down, self._checked_at = True, self._clock.now()
            return False
        if self._is_store_down:
            log.warning("the database answers again")
        self._is_store_down = False
        return True

    async def _catch_up(self) -> None:
        """Let the watches agree with the rows, whatever became of the last write."""
        await self._reload()
        now = self._clock.monotonic()
        self._watches = {
            key: replace(watch, is_open=key in self._rows)
            for key, watch in self._watches.items()
            if key in self._rows or not watch.is_open
        } | {
            key: WatchedFinding(_finding(row), now, is_open=True)
            for key, row in self._rows.items()
            if key not in self._watches
        }

    async def _reload(self) -> None:
        found: dict[Key, Event] = {}
        doubles: list[int] = []
        for row in await self._store.events.alerts(_OPEN, _MOST_OPEN):
            if found.setdefault(_key(row), row) is not row:
                doubles.append(row.seq)
        # Of a leader that was deposed while it wrote: one alert for a subject.
        await self._store.events.resolve_alerts(doubles, self._clock.now())
        self._rows = found
        self._is_unsure = False

    async def _write(self, change: AlertChange, now: datetime) -> None:
        """Events before the rows they are about: told twice rather than never."""
        events = [_raised(finding, now) for finding in change.raised]
        worse = [(self._rows[f.key], f) for f in change.worsened if f.key in self._rows]
        events += [
            _worsened(row, finding, now)
            for row, finding in worse
            if row.acknowledged_at is None
        ]
        over = [self._rows[key] for key in change.resolved if key in self._rows]
        events += [_resolved(row, now) for row in over]
        for event in events:
            log.log(_LEVELS[Severity(event.severity)], "alert: %s", event.title)
        await self._record(events)
        for row, finding in worse:
            await self._store.events.worsen_alert(
                row.seq, finding.severity, finding.title, _data(finding)
            )
        await self._store.events.resolve_alerts([row.seq for row in over], now)


def _standing(finding: Finding, row: Event | None) -> ActiveFinding:
    if row is None:
        return ActiveFinding(finding)
    return ActiveFinding(finding, row.seq, row.acknowledged_at is not None)


def _data(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "subject": finding.subject,
        "value": finding.value,
        "limit": finding.limit,
    }


def _raised(finding: Finding, now: datetime) -> Event:
    return Event(
        ALERT,
        finding.title,
        finding.severity,
        finding.node_id,
        data=_data(finding),
        at=now,
    )


def _worsened(row: Event, finding: Finding, now: datetime) -> Event:
    data = {**_data(finding), "alert": row.seq, "raised_at": _text(row.at)}
    event = _raised(finding, now)
    return replace(event, event_type=WORSENED, data=data)


def _resolved(row: Event, now: datetime) -> Event:
    about = {
        "alert": row.seq,
        "severity": row.severity,
        "raised_at": _text(row.at),
        "title": row.title,
    }
    return Event(
        RESOLVED,
        f"over: {row.title}",
        source_node_id=row.source_node_id,
        data={**row.data, **about},
        at=now,
    )


def _acknowledged(row: Event, now: datetime) -> Event:
    return Event(
        "alert_acknowledged",
        f"{row.acknowledged_by} looks after: {row.title}",
        source_node_id=row.source_node_id,
        data={"alert": row.seq, "note": row.data.get("note", "")},
        at=now,
    )


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _key(row: Event) -> Key:
    return str(row.data.get("rule", "")), str(row.data.get("subject", ""))


def _finding(row: Event) -> Finding:
    rule, subject = _key(row)
    return Finding(
        rule,
        subject,
        Severity(row.severity),
        row.title,
        row.data.get("value"),
        row.data.get("limit"),
        row.source_node_id,
    )


def _reading(link: NodeLink) -> NodeReading:
    # No agent speaks of the cards of the manager's own machine.
    is_heard = link.sample is not None and (link.gpus is not None or link.is_own)
    skew_s = link.clock.seconds
    return NodeReading(link.node, link.sample, link.gpus, skew_s, is_heard)

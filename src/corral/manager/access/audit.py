"""The audit trail: who did what, remembered at once and written within a second.

It is written in order, and what waits for a store that is away is bounded. Its chain
is looked through at the start, every day, and when somebody asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from corral.manager.context import ManagerContext
from corral.store.base import (
    AccessStore,
    AuditQuery,
    AuditReport,
    AuditRow,
    Event,
)

log = logging.getLogger(__name__)
CHECK_S = 86_400.0
MOST = 20_000
"""So many rows wait for the store at most; later ones are counted only."""
_AT_ONCE = 1000


class Audit:
    """`checked` is what the last look at the chain found, and when that was."""

    def __init__(self, ctx: ManagerContext) -> None:
        self._store: AccessStore = ctx.store.access
        self._cluster = ctx.cluster
        self._clock = ctx.clock
        self._record = ctx.record
        self._rows: list[AuditRow] = []
        self._untold = 0
        self._last_seq = 0
        # Two flushes at a time could write what came later first.
        self._writing = asyncio.Lock()
        self.checked: tuple[AuditReport, datetime] | None = None

    def note(
        self,
        actor: str,
        action: str,
        target: str,
        *,
        is_allowed: bool,
        ip: str = "",
        request_id: str = "",
        data: dict[str, Any] | None = None,
        at: datetime | None = None,
    ) -> None:
        """Remember an audit row; its loop writes it within a second.

        While the store is away rows wait, but not without end: first those go untold
        that anybody can cause. How many did is told afterwards.
        """
        if len(self._rows) >= (MOST if is_allowed else MOST // 2):
            self._untold += 1
            return
        self._rows.append(
            AuditRow(
                at or self._clock.now(),
                actor,
                action,
                target,
                is_allowed,
                ip,
                request_id,
                data or {},
            )
        )

    async def flush(self) -> None:
        async with self._writing:
            while self._rows:
                rows = self._rows[:_AT_ONCE]
                self._last_seq = await self._store.add_audit(rows)
                # Not before: what could not be written stays first in line.
                del self._rows[: len(rows)]
            if self._untold:
                lost, self._untold = self._untold, 0
                log.error("%d rows of the audit trail were lost: too many waited", lost)
                text = f"{lost} rows, while the store was away"
                self.note("corral", "audit.lost", text, is_allowed=True)

    async def page(self, where: AuditQuery, limit: int) -> Sequence[AuditRow]:
        """What is in the trail by now, newest first."""
        await self.flush()
        return await self._store.audit(limit, where)

    async def check(self) -> AuditReport:
        """Look through the whole chain; a break is an event, and an alert."""
        await self.flush()
        known = self._last_seq
        report = await self._store.check_audit()
        if report.is_intact and report.last_seq < known:
            # Whole, but not ours any more: an older state was put back.
            fault = f"rows after {report.last_seq} are missing, of {known} written"
            report = replace(report, fault=fault)
        was_intact = self.checked is None or self.checked[0].is_intact
        self.checked = report, self._clock.now()
        self._cluster.set_audit(report.fault)
        if was_intact and not report.is_intact:
            title = f"the audit trail was changed: {report.fault}"
            log.critical("%s", title)
            event = Event("audit_broken", title, "critical", at=self._clock.now())
            await self._record([event])
        return report

    async def step(self) -> None:
        """One look that nobody asked for."""
        await self.check()

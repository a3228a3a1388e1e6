"""The audit trail: who did what, remembered at once and written within a second."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from corral.manager.context import ManagerContext
from corral.store.base import AccessStore, AuditRow

log = logging.getLogger(__name__)
MOST = 20_000


class Audit:
    def __init__(self, ctx: ManagerContext) -> None:
        self._store: AccessStore = ctx.store.access
        self._clock = ctx.clock
        self._rows: list[AuditRow] = []
        self._untold = 0

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
        rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            await self._store.add_audit(rows)
        except BaseException:
            self._rows = rows + self._rows
            raise
        if self._untold:
            lost, self._untold = self._untold, 0
            log.error("%d rows of the audit trail were lost: too many waited", lost)
            text = f"{lost} rows, while the store was away"
            self.note("corral", "audit.lost", text, is_allowed=True)

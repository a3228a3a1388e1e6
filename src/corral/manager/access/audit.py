"""The audit trail: who did what, remembered at once and written within a second."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from corral.manager.context import ManagerContext
from corral.store.base import AccessStore, AuditRow


class Audit:
    def __init__(self, ctx: ManagerContext) -> None:
        self._store: AccessStore = ctx.store.access
        self._clock = ctx.clock
        self._rows: list[AuditRow] = []

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
        """Remember an audit row; its loop writes it within a second."""
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

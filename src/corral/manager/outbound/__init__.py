"""Calls to addresses that users and operators name."""

from __future__ import annotations

from collections.abc import Sequence

from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.outbound.task_service import TaskService, TaskServiceConfig
from corral.manager.outbound.task_webhooks import TaskWebhooks
from corral.manager.outbound.webhook import NotifyConfig


class Outbound(Feature):
    def __init__(
        self,
        ctx: ManagerContext,
        hooks: NotifyConfig,
        task_service: TaskServiceConfig | None,
    ) -> None:
        self.webhooks = TaskWebhooks(ctx, hooks)
        self.task_service = TaskService(ctx, task_service) if task_service else None
        self._parts = [p for p in (self.webhooks, self.task_service) if p is not None]

    async def open(self) -> None:
        for part in self._parts:
            await part.open()

    def loops(self) -> Sequence[Loop]:
        return [part.loop() for part in self._parts]

    async def close(self) -> None:
        for part in self._parts:
            await part.close()

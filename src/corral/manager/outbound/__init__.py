"""Calls to addresses that users and operators name."""

from __future__ import annotations

from collections.abc import Sequence

from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.outbound.task_service import (
    PERIOD_S,
    TaskService,
    TaskServiceConfig,
)
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
        self.task_service: TaskService | None = None
        if task_service is not None:
            self.task_service = TaskService(ctx, task_service)

    async def open(self) -> None:
        await self.webhooks.open()
        if self.task_service is not None:
            await self.task_service.open()

    def loops(self) -> Sequence[Loop]:
        loops = [Loop("webhooks", 0.1, self.webhooks.step)]
        if self.task_service is not None:
            loops.append(Loop("task service", PERIOD_S, self.task_service.step))
        return loops

    async def close(self) -> None:
        await self.webhooks.close()
        if self.task_service is not None:
            await self.task_service.close()

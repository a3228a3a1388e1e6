"""HTTP services behind the gateway, and calls to them."""

from __future__ import annotations

from corral.manager.context import ManagerContext
from corral.manager.feature import Feature
from corral.manager.gateway.app_tasks import AppCalls
from corral.manager.gateway.apps import AppRequests, Apps
from corral.manager.outbound.address import GatewayConfig
from corral.manager.tasks import Tasks


class Gateway(Feature):
    """`apps` by name, `requests` to them, and `calls` that tasks make."""

    def __init__(
        self, ctx: ManagerContext, tasks: Tasks, config: GatewayConfig
    ) -> None:
        self.requests = AppRequests(ctx, config)
        self.calls = AppCalls(ctx, self.requests, tasks)
        self.apps = Apps(ctx, config, self.calls)

    async def load(self) -> None:
        await self.apps.load()

    async def close(self) -> None:
        await self.calls.stop()
        await self.requests.close()

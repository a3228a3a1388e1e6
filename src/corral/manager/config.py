"""What a manager is told at its start; its caller has read the settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from corral.core.tasks.outcome import RetryPolicy
from corral.manager.access.derived_keys import webhook_secret
from corral.manager.access.rate_limit import RateLimits
from corral.manager.alerts.alerts import AlertConfig
from corral.manager.events.listener import LiveConfig
from corral.manager.models.memory import ModelConfig
from corral.manager.models.sources import SourceConfig
from corral.manager.nodes import NodesConfig
from corral.manager.nodes.liveness import Liveness
from corral.manager.nodes.master import MasterConfig
from corral.manager.outbound.address import GatewayConfig
from corral.manager.outbound.task_service import TaskServiceConfig
from corral.manager.outbound.webhook import NotifyConfig
from corral.manager.tasks import TasksConfig
from corral.manager.tracing import TraceConfig
from corral.manager.upkeep import UpkeepConfig
from corral.manager.workers.scaling import ScalingConfig
from corral.scheduler.scheduler import Policy
from corral.store.base import Retention


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """The settings the manager needs, already read."""

    cluster_secret: bytes
    cluster_name: str = "corral"
    public_url: str = ""
    policy: Policy = field(default_factory=Policy)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    liveness: Liveness = field(default_factory=Liveness)
    limits: RateLimits = field(default_factory=RateLimits)
    keep: Retention = field(
        default_factory=lambda: Retention(30 * 86400, 30 * 86400, 86400, 365 * 86400)
    )
    artifact_limit_bytes: int = 10 << 30
    result_cache_bytes: int = 256 << 20
    keep_objects_s: float = 7 * 86400.0
    beat_s: float = 5.0
    fence_after_s: float = 90.0
    overrun_s: float = 0.05
    sample_s: float = 30.0
    stale_node_after_s: float = 7 * 86400.0
    journal_events: int = 100_000
    default_timeout_s: float | None = 300.0
    is_open: bool = False
    is_metrics_public: bool = False
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    worker_ports: tuple[int, ...] = tuple(range(8092, 8112))
    alerts: AlertConfig = field(default_factory=AlertConfig)
    live: LiveConfig = field(default_factory=LiveConfig)
    models: ModelConfig = field(default_factory=ModelConfig)
    sources: SourceConfig = field(default_factory=SourceConfig)
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    neighbour: TaskServiceConfig | None = None
    traces: TraceConfig | None = None
    master: MasterConfig | None = None

    @property
    def tasks(self) -> TasksConfig:
        free_after_s = self.liveness.no_overlap_requeue_s
        return TasksConfig(self.retry, self.result_cache_bytes, free_after_s)

    @property
    def nodes(self) -> NodesConfig:
        stale_s = self.stale_node_after_s
        return NodesConfig(self.liveness, self.sample_s, stale_s, self.master)

    @property
    def upkeep(self) -> UpkeepConfig:
        return UpkeepConfig(self.keep, self.keep_objects_s, self.liveness.register_s)

    @property
    def hooks(self) -> NotifyConfig:
        reach = replace(self.gateway, is_private_listed=True)
        return NotifyConfig(webhook_secret(self.cluster_secret), reach)

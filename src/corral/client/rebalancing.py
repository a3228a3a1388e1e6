"""The call that has models move to workers where they are worth more."""

from __future__ import annotations

from corral.client.exchange import Flow, Request
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.value import Value


class RebalanceOperation(Value, frozen=True, kw_only=True):
    """A model that moves (`model_migration`) or is copied (`model_copy`); seconds."""

    type: str
    from_worker: str
    to_worker: str
    model: str
    saves_s: float = 0.0
    costs_s: float = 0.0


class RebalanceInfo(Value, frozen=True, kw_only=True):
    """What moves; `status` is initiated, dry_run or balanced (there is nothing)."""

    rebalance_id: str
    status: str
    message: str = ""
    strategy: str = ""
    estimated_duration: float = 0.0
    affected_workers: list[str] = []
    operations: list[RebalanceOperation] = []


def rebalance(
    *,
    strategy: str = "memory_optimized",
    force: bool = False,
    dry_run: bool = False,
) -> Flow[RebalanceInfo]:
    """Have models go to workers where they are worth more; returns at once.

    `strategy` is memory_optimized or load_balanced. Workers that are busy are left
    alone without `force`; a `dry_run` only says what would move.

    Raises:
        Conflict: the last one is not through.
    """
    body = {"strategy": strategy, "force": force, "dry_run": dry_run}
    response = yield Request("POST", "/cluster/rebalance", body=encode(body))
    return decode(response, RebalanceInfo)

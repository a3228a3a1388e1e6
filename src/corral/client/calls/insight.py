"""The calls about figures over time, usage, and the scheduler's journal."""

from __future__ import annotations

from typing import Any

from corral.client.http.endpoint import Flow, get, segment
from corral.client.http.errors import decode
from corral.wire.insight import ClusterMetrics, NodeMetrics, UsageReport


def node_metrics(
    node_id: str,
    *,
    since: str | float | None = None,
    until: str | float | None = None,
    step: int | None = None,
) -> Flow[NodeMetrics]:
    """How a node and its GPUs fared.

    Args:
        node_id: The node.
        since: Like `-24h` (the default), epoch seconds, or an ISO 8601 time.
        until: The same; now without it.
        step: Seconds between points; without it, so that there are at most 300.
    """
    path = f"/nodes/{segment(node_id)}/metrics"
    # A word of the language cannot be the name of an argument.
    when: dict[str, Any] = {"from": since}
    response = yield get(path, to=until, step=step, **when)
    return decode(response, NodeMetrics)


def cluster_metrics(timeframe: str = "24h") -> Flow[ClusterMetrics]:
    """How the cluster fared in the last `1h`, `24h`, `7d` or `30d`."""
    response = yield get("/cluster/metrics", timeframe=timeframe)
    return decode(response, ClusterMetrics)


def usage(
    by: str = "owner", *, since: str = "-7d", until: str = "now"
) -> Flow[UsageReport]:
    """GPU-hours by `owner`, `job_type` or `label:KEY`.

    Args:
        by: What runs are put together by.
        since: Like `-24h`, or a time in ISO 8601.
        until: The same.
    """
    when: dict[str, Any] = {"from": since, "to": until}
    response = yield get("/usage", by=by, **when)
    return decode(response, UsageReport)


# The call for the scheduler's journal.


def journal(since_s: float = 86_400.0) -> Flow[bytes]:
    """What the scheduler was told and decided, as lines of JSON.

    Args:
        since_s: At least the last so many seconds, as far as they are remembered.

    Raises:
        Conflict: The manager keeps no journal.
    """
    response = yield get("/cluster/journal", since_s=since_s)
    return response.body

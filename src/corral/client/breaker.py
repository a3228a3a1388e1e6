"""The call about breakers; what is open is part of each node (`client.nodes()`)."""

from __future__ import annotations

from corral.client.exchange import Flow, Request, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.value import Value


class BreakersReset(Value, frozen=True, kw_only=True):
    """`reset` are the breakers, `workers` those that are started because of it."""

    node_id: str
    reset: list[str] = []
    workers: list[str] = []


def reset_breakers(node_id: str, key: str | None = None) -> Flow[BreakersReset]:
    """Close one breaker of a node, or all, and start what waits for it at once.

    Raises NotFound when nothing waits for that one.
    """
    body = encode({} if key is None else {"key": key})
    path = f"/nodes/{segment(node_id)}/breakers/reset"
    response = yield Request("POST", path, body=body)
    return decode(response, BreakersReset)

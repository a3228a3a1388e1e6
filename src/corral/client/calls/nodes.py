"""The calls about nodes: listed, held, marked, planned for, let go; their cards.

A node is named by its id or, where only one is called so, by its hostname.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from corral.client.http.endpoint import Flow, Request, get, segment
from corral.client.http.errors import decode
from corral.client.http.payload import encode
from corral.errors import Conflict, NodeNotFound
from corral.wire.nodes import (
    BreakersReset,
    NodeGone,
    NodeInfo,
    NodeList,
    WindowInfo,
    WindowList,
)

_ID = re.compile(r"n-[0-9a-f]{10}")
Moment = float | datetime | str


def _path(name: str, rest: str = "") -> Flow[str]:
    node_id = name if _ID.fullmatch(name) else (yield from find_node(name)).node_id
    return f"/nodes/{segment(node_id)}{rest}"


def find_node(name: str) -> Flow[NodeInfo]:
    """A node by its id or hostname; of several of one name the one still there.

    Raises:
        NodeNotFound: there is none.
        Conflict: several are called so; their ids tell them apart.
    """
    known = yield from nodes()
    found = [n for n in known if n.node_id == name]
    found = found or [n for n in known if n.hostname == name and n.status != "left"]
    if not found:
        raise NodeNotFound(f"no node {name!r}", node_id=name)
    if len(found) > 1:
        ids = ", ".join(n.node_id for n in found)
        raise Conflict(f"several nodes are called {name!r}: use an id ({ids})")
    return found[0]


def _hold(
    node: str, verb: str, reason: str | None, until: Moment | None
) -> Flow[NodeInfo]:
    said = {"reason": reason, "until": until}
    given = {key: value for key, value in said.items() if value is not None}
    path = yield from _path(node, f"/{verb}")
    response = yield Request("POST", path, body=encode(given), is_repeatable=True)
    return decode(response, NodeInfo)


def cordon_node(
    node: str, *, reason: str | None = None, until: Moment | None = None
) -> Flow[NodeInfo]:
    """Give a node nothing new; what it runs goes on, and its workers stay."""
    return (yield from _hold(node, "cordon", reason, until))


def drain_node(
    node: str, *, reason: str | None = None, until: Moment | None = None
) -> Flow[NodeInfo]:
    """Give a node nothing new and stop its workers once they are done.

    Returns at once; the node's `scheduling` is `drained` when nothing runs there.
    """
    return (yield from _hold(node, "drain", reason, until))


def uncordon_node(node: str) -> Flow[NodeInfo]:
    """Let a node have work again, and start its workers."""
    path = yield from _path(node, "/uncordon")
    response = yield Request("POST", path, is_repeatable=True)
    return decode(response, NodeInfo)


def change_node(
    node: str,
    *,
    labels: Mapping[str, str | None] | None = None,
    taints: Mapping[str, str | None] | None = None,
) -> Flow[NodeInfo]:
    """Add labels and taints to a node, or take them away with None.

    A taint of "" has no value.
    """
    body = encode({"labels": labels or {}, "taints": taints or {}})
    path = yield from _path(node)
    response = yield Request("PATCH", path, body=body, is_repeatable=True)
    return decode(response, NodeInfo)


def remove_node(node: str, *, force: bool = False) -> Flow[str]:
    """Let a node leave for good: `left`, or `leaving` while its agent still stops.

    Raises:
        Conflict: tasks run on it, and `force` was not said.
    """
    path = yield from _path(node)
    query = {"force": "true"} if force else {}
    response = yield Request("DELETE", path, query)
    return decode(response, NodeGone).status


def windows(node: str) -> Flow[list[WindowInfo]]:
    """A node's windows of maintenance."""
    path = yield from _path(node, "/windows")
    response = yield get(path)
    return decode(response, WindowList).windows


def add_window(
    node: str,
    name: str,
    duration: float,
    *,
    cron: str | None = None,
    starts_at: Moment | None = None,
    timezone: str | None = None,
    reason: str | None = None,
    drain: bool = True,
) -> Flow[list[WindowInfo]]:
    """Plan maintenance: `duration` seconds from `starts_at`, or at each time of `cron`.

    `starts_at` is a time or seconds from now.
    """
    said: dict[str, Any] = {
        "name": name,
        "duration": duration,
        "cron": cron,
        "starts_at": starts_at,
        "timezone": timezone,
        "reason": reason,
        "drain": drain,
    }
    given = {key: value for key, value in said.items() if value is not None}
    path = yield from _path(node, "/windows")
    response = yield Request("POST", path, body=encode(given))
    return decode(response, WindowList).windows


def remove_window(node: str, name: str) -> Flow[list[WindowInfo]]:
    """Forget a window; one that lasts ends now."""
    path = yield from _path(node, f"/windows/{segment(name)}")
    response = yield Request("DELETE", path)
    return decode(response, WindowList).windows


def nodes() -> Flow[list[NodeInfo]]:
    response = yield get("/nodes")
    return decode(response, NodeList).nodes


def node(node_id: str) -> Flow[NodeInfo]:
    response = yield get(f"/nodes/{segment(node_id)}")
    return decode(response, NodeInfo)


def release_gpu(node_id: str, gpu_id: str) -> Flow[dict[str, Any]]:
    """Lift the quarantine of a card; the card as it was."""
    path = f"/nodes/{segment(node_id)}/gpus/{segment(gpu_id)}/release"
    response = yield Request("POST", path)
    return decode(response, dict[str, Any])


# The call about breakers; what is open is part of each node (`client.nodes()`).


def reset_breakers(node_id: str, key: str | None = None) -> Flow[BreakersReset]:
    """Close one breaker of a node, or all, and start what waits for it at once.

    Raises NotFound when nothing waits for that one.
    """
    body = encode({} if key is None else {"key": key})
    path = f"/nodes/{segment(node_id)}/breakers/reset"
    response = yield Request("POST", path, body=body)
    return decode(response, BreakersReset)

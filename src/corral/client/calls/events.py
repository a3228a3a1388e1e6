"""The calls about what happens and what is wrong: events, alerts, health."""

from __future__ import annotations

from itertools import chain

from corral.client.http.endpoint import Flow, Items, Request, Stream, get, poll
from corral.client.http.errors import decode
from corral.client.http.payload import encode
from corral.wire.events import (
    AlertInfo,
    AlertList,
    ClusterHealth,
    EventInfo,
    EventList,
    LiveEvent,
    LivePage,
)

RESET = "reset"


def events(
    *,
    after: int | str | None = None,
    limit: int | None = None,
    task_id: str | None = None,
    severity: str | None = None,
    event_type: str | None = None,
    node_id: str | None = None,
    wait_s: float | None = None,
) -> Flow[EventList]:
    """What happened: the newest events, or those after a place.

    `severity` asks for that or worse; `event_type` may name several, with commas.
    With `wait_s` the answer comes when there is one, or after so many seconds.
    """
    response = yield get(
        "/events",
        wait_s=wait_s or 0.0,
        after=after,
        limit=limit,
        task_id=task_id,
        severity=severity,
        type=event_type,
        node_id=node_id,
    )
    return decode(response, EventList)


def follow_events(
    *,
    after: int | str | None = None,
    limit: int | None = None,
    severity: str | None = None,
    event_type: str | None = None,
    node_id: str | None = None,
) -> Stream[EventInfo]:
    """Events as they come, without end; first the newest `limit`, or those `after`.

    Each comes once and in order, through lost connections and restarts of the manager.
    """
    # What is there comes at once.
    for wait_s in chain([0.0], poll()):
        page = yield from events(
            after=after,
            limit=limit,
            severity=severity,
            event_type=event_type,
            node_id=node_id,
            wait_s=wait_s,
        )
        if page.events:
            yield Items(page.events)
        after, limit = page.next, None


def alerts(
    *, is_open: bool = True, severity: str | None = None, limit: int | None = None
) -> Flow[list[AlertInfo]]:
    """What is wrong, newest first; without `is_open` also what was.

    `severity` asks for that or worse.
    """
    state = "open" if is_open else "all"
    response = yield get("/alerts", state=state, severity=severity, limit=limit)
    return decode(response, AlertList).alerts


def acknowledge_alert(alert_id: int, *, note: str | None = None) -> Flow[AlertInfo]:
    """Say that you look after an alert: nothing more is told of it until it is over.

    Raises:
        NotFound, Conflict: there is no such alert, or it is over.
    """
    response = yield Request(
        "POST",
        f"/alerts/{alert_id}/acknowledge",
        body=encode({"note": note} if note else {}),
        is_repeatable=True,
    )
    return decode(response, AlertInfo)


def cluster_health() -> Flow[ClusterHealth]:
    """How healthy the cluster is, why, and by which rules."""
    response = yield get("/cluster/health")
    return decode(response, ClusterHealth)


# The call that hears of events as they happen.


def live_events(
    *,
    after: int | None = None,
    event_type: str | None = None,
    task_id: str | None = None,
    task_type: str | None = None,
    node_id: str | None = None,
    worker_id: str | None = None,
    label: str | None = None,
    detail: str | None = None,
) -> Stream[LiveEvent]:
    """Everything that happens from now on, without end; or from after a `seq`.

    Each comes once and in order, through lost connections. `event_type` may name
    several, with commas; a `label` reads `key:value`. With `detail="summary"` changes
    of tasks come together, as `tasks_changed`.
    """
    for wait_s in chain([0.0], poll()):
        response = yield get(
            "/events/live",
            wait_s=wait_s,
            after=after,
            type=event_type,
            task_id=task_id,
            task_type=task_type,
            node_id=node_id,
            worker_id=worker_id,
            label=label,
            detail=detail,
        )
        page = decode(response, LivePage)
        if page.events:
            yield Items(page.events)
        after = page.next

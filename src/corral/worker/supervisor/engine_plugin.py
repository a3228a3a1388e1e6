"""The plug-in of the engine: the one Celery task, the bell, and what is switched off.

Importing it changes Celery's remote control of this process: commands that alter a
worker are gone, because they carry no signature.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any, Protocol

from celery import shared_task
from celery.worker import state as celery_state
from celery.worker.control import Panel, control_command, inspect_command

from corral.engine.celery_app import BELL, ORDER_TASK
from corral.worker.supervisor.order_desk import OrderDesk

log = logging.getLogger(__name__)

# Everything else Celery registers can change a worker, or write files.
HARMLESS = frozenset(
    {
        "active",
        "active_queues",
        "clock",
        "conf",
        "disable_events",
        "enable_events",
        "heartbeat",
        "ping",
        "query_task",
        "registered",
        "report",
        "reserved",
        "revoked",
        "scheduled",
        "stats",
    }
)
_USER_INFO = re.compile(r"//[^/@]*@")


class Bell(Protocol):
    def ring(self) -> None: ...


_desk: OrderDesk | None = None
_bell: Bell | None = None


def attach(desk: OrderDesk, bell: Bell) -> None:
    """Orders that arrive in this process go to `desk`."""
    global _desk, _bell
    _desk, _bell = desk, bell


def unregister_commands() -> None:
    """Take away every remote-control command that is not known to be harmless."""
    keep = HARMLESS | {Panel.meta[n].alias for n in HARMLESS if n in Panel.meta}
    for name in [n for n in Panel.data if n not in keep and n != BELL]:
        Panel.data.pop(name)
        Panel.meta.pop(name, None)


def is_nobody_waiting() -> bool:
    """Has every message we fetched a thread? Else this one should be set free."""
    waiting = len(celery_state.reserved_requests) - len(celery_state.active_requests)
    return waiting <= 0


@shared_task(name=ORDER_TASK, ignore_result=True)  # type: ignore[untyped-decorator]
def execute_order(signed: Any) -> None:
    """Run one signed order; nothing that is wrong with it may end the worker."""
    if _desk is None:
        log.error("an order came to a process that is not a worker's supervisor")
        return
    _desk.serve(signed, is_nobody_waiting)


@control_command(name=BELL)  # type: ignore[untyped-decorator]
def corral_bell(_state: Any) -> dict[str, str]:
    """Ask the manager at once what it wants stopped."""
    if _bell is not None:
        _bell.ring()
    return {"ok": "rung"}


# Celery's own answers to these have all arguments in them: whole orders, with the
# inputs of tasks and a signature. Its `safe` form has the text that the manager wrote
# in their place, and who asks has no say in it.


@inspect_command(name="active", alias="dump_active")  # type: ignore[untyped-decorator]
def active_orders(state: Any, **_: Any) -> list[dict[str, Any]]:
    """Orders at work, without what is in them."""
    return _shown(state.tset(celery_state.active_requests))


@inspect_command(name="reserved", alias="dump_reserved")  # type: ignore[untyped-decorator]
def reserved_orders(state: Any, **_: Any) -> list[dict[str, Any]]:
    """Orders that wait here, without what is in them."""
    reserved = state.tset(celery_state.reserved_requests)
    return _shown(reserved - state.tset(celery_state.active_requests))


@inspect_command(name="scheduled", alias="dump_schedule")  # type: ignore[untyped-decorator]
def scheduled_orders(_state: Any, **_: Any) -> list[dict[str, Any]]:
    """No order of ours waits for a time."""
    return []


@inspect_command(  # type: ignore[untyped-decorator]
    name="query_task", variadic="ids", signature="[id1 [id2 [... [idN]]]]"
)
def query_order(_state: Any, ids: Any, **_: Any) -> dict[str, tuple[str, Any]]:
    """How far orders are, by their ids, without what is in them."""
    asked = [ids] if isinstance(ids, str) else list(ids or ())
    found = [r for i in asked if (r := celery_state.requests.get(i)) is not None]
    return {r.id: (_stage(r), r.info(safe=True)) for r in found}


def _stage(request: Any) -> str:
    if request in celery_state.active_requests:
        return "active"
    return "reserved" if request in celery_state.reserved_requests else "ready"


def _shown(requests: Iterable[Any]) -> list[dict[str, Any]]:
    return [request.info(safe=True) for request in requests]


@inspect_command(name="stats")  # type: ignore[untyped-decorator]
def stats_without_password(state: Any) -> dict[str, Any]:
    """Celery's own answer shows a socket's address with this node's password in it."""
    told: dict[str, Any] = state.consumer.controller.stats()
    broker = told.get("broker") or {}
    if isinstance(broker.get("hostname"), str):
        broker["hostname"] = _USER_INFO.sub("//", broker["hostname"])
    return told


unregister_commands()

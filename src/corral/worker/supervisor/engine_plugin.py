"""The plug-in of the engine: the one Celery task, the bell, and what is switched off.

Importing it changes Celery's remote control of this process: commands that alter a
worker are gone, because they carry no signature.
"""

from __future__ import annotations

import logging
import re
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


@inspect_command(name="stats")  # type: ignore[untyped-decorator]
def stats_without_password(state: Any) -> dict[str, Any]:
    """Celery's own answer shows a socket's address with this node's password in it."""
    told: dict[str, Any] = state.consumer.controller.stats()
    broker = told.get("broker") or {}
    if isinstance(broker.get("hostname"), str):
        broker["hostname"] = _USER_INFO.sub("//", broker["hostname"])
    return told


unregister_commands()

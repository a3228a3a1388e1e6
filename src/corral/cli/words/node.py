"""A node on the terminal: its name, how it is, what it has, when it was heard."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from corral.cli.terminal import output
from corral.cli.words import gpu

if TYPE_CHECKING:
    from corral.cli.terminal.output import Columns
    from corral.wire.nodes import NodeInfo

_GONE = ("offline", "left")


def name(node: NodeInfo) -> str:
    return node.hostname or node.node_id


def status(node: NodeInfo) -> str:
    """One that takes new work needs no word for it."""
    if node.scheduling in ("", "open"):
        return node.status
    return f"{node.status}, {node.scheduling}"


def is_gone(node: NodeInfo) -> bool:
    """Is what it told last no longer true?"""
    return node.status in _GONE


def heartbeat(node: NodeInfo, now: datetime | None = None) -> str:
    return output.ago(node.last_heartbeat, now)


COLUMNS: Columns[NodeInfo] = {
    "NODE": lambda node: node.node_id,
    "HOST": lambda node: node.hostname,
    "STATUS": status,
    "WORKERS": lambda node: node.workers,
    "GPUS": lambda node: gpu.offered(node.gpus),
    "CPU": lambda node: output.percent(node.cpu_percent),
    "MEMORY": lambda node: output.percent(node.memory_percent),
    "DISK": lambda node: output.percent(node.disk_percent),
    "LOAD": lambda node: "" if node.load_1m is None else f"{node.load_1m:.2f}",
    "HEARTBEAT": heartbeat,
}

"""What operators say of nodes for good: labels, taints, windows of maintenance."""

from __future__ import annotations

from collections.abc import Mapping

from corral.core.nodes.labels import check_label, check_taint, key_of
from corral.core.nodes.node import NodeRecord, Window
from corral.errors import Conflict, InvalidField, NotFound
from corral.manager.cluster.state import NodeLink
from corral.manager.context import ManagerContext
from corral.manager.nodes import holds
from corral.manager.nodes.windows import MOST, check
from corral.manager.tasks.dispatch import Dispatch
from corral.store.base import RegistryStore

_MOST = 64


class NodeLabels:
    def __init__(self, ctx: ManagerContext, dispatch: Dispatch) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._dispatch = dispatch
        self._clock = ctx.clock

    async def change(
        self,
        node_id: str,
        labels: Mapping[str, str | None],
        taints: Mapping[str, str | None],
    ) -> NodeLink:
        """Add or take away labels and taints; None takes away, and so does a label "".

        A taint of "" is one without a value.
        """
        link = self._cluster.node(node_id)
        set_labels = _labelled(link.node, labels)
        set_taints = _tainted(link.node, taints)
        if max(len(set_labels), len(set_taints)) > _MOST:
            raise InvalidField(f"at most {_MOST} are allowed", field="labels")
        await holds.change_node(
            self._store, link, set_labels=set_labels, set_taints=set_taints
        )
        self._cluster.mark(link.node)
        self._dispatch.kick()
        return link

    async def add_window(self, node_id: str, window: Window) -> NodeLink:
        link = self._cluster.node(node_id)
        check(window, self._clock.now())
        known = link.node.windows
        if any(w.name == window.name for w in known):
            raise Conflict(f"node {node_id} has a window {window.name!r} already")
        if len(known) >= MOST:
            raise Conflict(f"a node has at most {MOST} windows")
        await holds.change_node(self._store, link, windows=(*known, window))
        return link

    async def remove_window(self, node_id: str, name: str) -> NodeLink:
        link = self._cluster.node(node_id)
        left = tuple(w for w in link.node.windows if w.name != name)
        if len(left) == len(link.node.windows):
            raise NotFound(f"node {node_id} has no window {name[:128]!r}", name=name)
        await holds.change_node(self._store, link, windows=left)
        return link


def _labelled(node: NodeRecord, labels: Mapping[str, str | None]) -> dict[str, str]:
    said = dict(node.set_labels)
    for key, value in labels.items():
        check_label(key, value or "x", "labels")
        said.pop(key, None)
        if value or key in node.labels:
            said[key] = value or ""
    return said


def _tainted(node: NodeRecord, taints: Mapping[str, str | None]) -> tuple[str, ...]:
    said = {key_of(taint.removeprefix("-")): taint for taint in node.set_taints}
    own = {key_of(taint) for taint in node.taints}
    for key, value in taints.items():
        taint = f"{key}={value}" if value else key
        check_taint(taint, "taints")
        said.pop(key, None)
        if value is not None:
            said[key] = taint
        elif key in own:
            said[key] = f"-{key}"
    return tuple(said.values())

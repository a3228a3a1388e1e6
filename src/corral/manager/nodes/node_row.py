"""Changes what a node's row says, among others who write the same row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from corral.manager.cluster.state import NodeLink
from corral.store.base import Store


async def change(store: Store, link: NodeLink, **said: Any) -> None:
    """Change fields of a node in memory and in the store, or in neither.

    Memory has them first: a beat that writes the row meanwhile writes them too.
    """
    former = {name: getattr(link.node, name) for name in said}
    link.node = replace(link.node, **said)
    try:
        await store.save_node(link.node)
    except BaseException:
        link.node = replace(link.node, **former)
        raise

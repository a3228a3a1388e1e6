"""Which trees are kept for which task, in memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from corral.core.tasks.task import State
from corral.store.base import CHECKPOINT, KeptTree
from corral.store.memory_shelf import MemoryShelf
from corral.store.text import clean

_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class MemoryKept(MemoryShelf):
    async def save_tree(self, tree: KeptTree) -> None:
        tree = replace(tree, left_out=clean(tree.left_out))
        self._trees[tree.task_id, tree.kind, tree.attempt] = tree
        if tree.kind == CHECKPOINT:
            for old in await self.trees(tree.task_id, CHECKPOINT):
                if old.attempt < tree.attempt:
                    del self._trees[old.task_id, old.kind, old.attempt]

    async def trees(self, task_id: str, kind: str) -> Sequence[KeptTree]:
        found = [
            tree
            for tree in self._trees.values()
            if tree.task_id == task_id and tree.kind == kind
        ]
        return sorted(found, key=lambda tree: tree.attempt)

    async def forget_trees(self, task_id: str, kind: str) -> None:
        for tree in await self.trees(task_id, kind):
            del self._trees[tree.task_id, tree.kind, tree.attempt]

    async def drop_trees(self) -> int:
        gone = [
            place
            for place, tree in self._trees.items()
            if (task := self._tasks.get(tree.task_id)) is None
            or (tree.kind == CHECKPOINT and task.state is State.COMPLETED)
        ]
        for place in gone:
            del self._trees[place]
        return len(gone)

    async def kept_digests(self) -> set[str]:
        return {tree.digest for tree in self._trees.values()}

    async def payload_digests(self) -> set[str]:
        payloads = (task.spec.payload for task in self._tasks.values())
        return {digest for text in payloads for digest in _DIGEST.findall(text)}

    def _forget_trees_of(self, task_ids: Collection[str]) -> int:
        gone = [place for place in self._trees if place[0] in task_ids]
        for place in gone:
            del self._trees[place]
        return len(gone)

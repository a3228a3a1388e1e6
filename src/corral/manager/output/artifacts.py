"""Files kept for tasks: what an attempt left, and the checkpoint it goes on from.

The bytes are objects by now; what is decided here is whose they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from corral.core import tree as trees
from corral.core.tasks.task import State, Task
from corral.core.tree import CHUNK_BYTES, Tree, TreeFile
from corral.errors import Conflict, InvalidField, NotFound, TaskNotFound, TooLarge
from corral.manager.cluster.state import WorkerLink
from corral.manager.context import ManagerContext
from corral.store.base import ARTIFACTS, CHECKPOINT, KeptTree
from corral.store.objects import ObjectStore
from corral.wire.output import KeepRequest

ARTIFACT_FILES = 10_000


async def load_tree(
    objects: ObjectStore, digest: str, limit_bytes: int | None = None
) -> Tree:
    """The tree that an object describes.

    Raises:
        BadRequest: it describes none.
        TooLarge: its files have more bytes than `limit_bytes`.
    """
    data = await objects.get(digest)
    if not trees.is_tree(data):
        raise InvalidField(f"object {digest} is no tree of files", field="digest")
    names = await asyncio.to_thread(trees.pieces_of, data)
    # Anybody may have written it: not a byte of its pieces before their sizes.
    trees.check_list_size(sum([await objects.size(name) or 0 for name in names]))
    pieces = [await objects.get(name) for name in names]
    # A long list takes long enough to hold up everybody else.
    return await asyncio.to_thread(trees.decode, data, pieces, limit_bytes)


class Artifacts:
    def __init__(self, ctx: ManagerContext, limit_bytes: int) -> None:
        self._cluster = ctx.cluster
        self._store = ctx.store
        self._objects = ctx.objects
        self._clock = ctx.clock
        self._limit = limit_bytes

    async def save(self, link: WorkerLink, keep: KeepRequest) -> KeptTree:
        """Keep a tree for an attempt.

        Raises:
            Conflict: this worker does not hold that attempt.
            TooLarge: more than is kept of one task.
        """
        if keep.kind not in (ARTIFACTS, CHECKPOINT):
            raise InvalidField("kind is artifacts or checkpoint", field="kind")
        await self._held(link, keep.task_id, keep.attempt)
        tree = await load_tree(self._objects, keep.digest)
        size, count = tree.size, len(tree.files)
        most = ARTIFACT_FILES if keep.kind == ARTIFACTS else trees.TREE_FILES
        if size > self._limit or count > most:
            raise TooLarge(
                f"at most {self._limit} bytes in {most} files are kept of a task "
                "(CORRAL_ARTIFACT_LIMIT_GB of the manager)",
                limit_bytes=self._limit,
            )
        row = KeptTree(
            keep.task_id,
            keep.kind,
            keep.attempt,
            keep.digest,
            count,
            size,
            keep.left_out[:2000],
            self._clock.now(),
        )
        await self._store.output.save_tree(row)
        return row

    async def checkpoint(
        self, link: WorkerLink, task_id: str, attempt: int
    ) -> KeptTree | None:
        """Where an attempt goes on from, for the worker that has it."""
        await self._held(link, task_id, attempt)
        found = await self._store.output.trees(task_id, CHECKPOINT)
        return found[-1] if found else None

    async def _held(self, link: WorkerLink, task_id: str, attempt: int) -> None:
        """A cancelled task has ended already, but its worker still tidies up."""
        task = self._cluster.tasks.get(task_id)
        if task is not None:
            is_held = task.incarnation == link.worker.incarnation
        else:
            task = await self._store.tasks.get_task(task_id)
            is_held = task is not None and task.worker_id == link.id
        if task is None or not is_held or task.attempt != attempt:
            raise Conflict(
                f"worker {link.id} does not hold attempt {attempt} of task {task_id}",
                task_id=task_id,
                attempt=attempt,
            )

    async def restart(self, task: Task) -> None:
        """It runs again: from the start if it was done, else from its checkpoint."""
        if task.state is State.COMPLETED:
            await self._store.output.forget_trees(task.id, CHECKPOINT)

    async def artifacts(
        self, task_id: str, attempt: int | None = None
    ) -> tuple[KeptTree, Tree] | None:
        """What an attempt left; the last one that left anything unless told which.

        Raises:
            TaskNotFound: no such task.
        """
        rows = await self._store.output.trees(task_id, ARTIFACTS)
        if attempt is not None:
            rows = [row for row in rows if row.attempt == attempt]
        if not rows:
            await self._check_known(task_id)
            return None
        return rows[-1], await load_tree(self._objects, rows[-1].digest)

    async def _check_known(self, task_id: str) -> None:
        if task_id in self._cluster.tasks or await self._store.tasks.get_task(task_id):
            return
        raise TaskNotFound(f"no task {task_id!r}", task_id=task_id)

    async def artifact(self, task_id: str, name: str, attempt: int | None) -> TreeFile:
        found = await self.artifacts(task_id, attempt)
        files: Sequence[TreeFile] = found[1].files if found else ()
        for file in files:
            if file.name == name:
                return file
        raise NotFound(f"task {task_id} left no file {name[:200]!r}", name=name[:200])

    async def read(self, file: TreeFile, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`, a chunk at a time, each checked."""
        for index, digest in enumerate(file.chunks):
            first = index * CHUNK_BYTES
            if first + CHUNK_BYTES <= start or first >= end:
                continue
            data = await self._objects.get(digest)
            yield data[max(start - first, 0) : end - first]

"""Which trees are kept for which task: artifacts of every attempt, one checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import delete, exists, select, text
from sqlalchemy.dialects.postgresql import insert

from corral.core.tasks.task import State
from corral.store.base import CHECKPOINT, KeptTree
from corral.store.postgres.connection import ConnectionPool
from corral.store.tables.tasks import kept_trees, tasks
from corral.store.text import clean

_DIGESTS = (
    "select distinct m[1] from tasks, "
    "regexp_matches(payload, '(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])', 'g') m"
)


class ArtifactRows:
    _pool: ConnectionPool

    async def save_tree(self, tree: KeptTree) -> None:
        row = asdict(tree) | {"left_out": clean(tree.left_out)}
        statement = insert(kept_trees).values(row)
        rest = ("digest", "files", "size", "left_out", "at")
        async with self._pool.begin() as connection:
            await connection.execute(
                statement.on_conflict_do_update(
                    index_elements=list(kept_trees.primary_key),
                    set_={name: statement.excluded[name] for name in rest},
                )
            )
            if tree.kind == CHECKPOINT:
                await connection.execute(
                    delete(kept_trees).where(
                        kept_trees.c.task_id == tree.task_id,
                        kept_trees.c.kind == CHECKPOINT,
                        kept_trees.c.attempt < tree.attempt,
                    )
                )

    async def trees(self, task_id: str, kind: str) -> Sequence[KeptTree]:
        rows = await self._pool.mappings(
            select(kept_trees)
            .where(kept_trees.c.task_id == clean(task_id), kept_trees.c.kind == kind)
            .order_by(kept_trees.c.attempt)
        )
        return [KeptTree(**row) for row in rows]

    async def forget_trees(self, task_id: str, kind: str) -> None:
        await self._pool.fetch(
            delete(kept_trees).where(
                kept_trees.c.task_id == task_id, kept_trees.c.kind == kind
            )
        )

    async def drop_trees(self) -> int:
        same = tasks.c.id == kept_trees.c.task_id
        is_done = exists().where(same, tasks.c.state == str(State.COMPLETED))
        rows = await self._pool.fetch(
            delete(kept_trees)
            .where(
                ((kept_trees.c.kind == CHECKPOINT) & is_done) | ~exists().where(same)
            )
            .returning(kept_trees.c.task_id)
        )
        return len(rows)

    async def kept_digests(self) -> set[str]:
        rows = await self._pool.fetch(select(kept_trees.c.digest).distinct())
        return {row[0] for row in rows}

    async def payload_digests(self) -> set[str]:
        return {row[0] for row in await self._pool.fetch(text(_DIGESTS))}

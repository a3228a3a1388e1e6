"""What was learned of tasks and workers, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter

from corral.core.insight.learned import Learned
from corral.store.learned import subject_of
from corral.store.memory_shelf import MemoryShelf


class MemoryLearned(MemoryShelf):
    async def save_learned(self, rows: Sequence[Learned], at: datetime) -> None:
        self._learned |= {subject_of(row): (at, row) for row in rows}

    async def learned(self, limit: int) -> Sequence[Learned]:
        every = sorted(self._learned.values(), key=itemgetter(0), reverse=True)
        return sorted((row for _, row in every[:limit]), key=subject_of)

    async def forget_learned(self, before: datetime) -> None:
        self._learned = {
            subject: kept
            for subject, kept in self._learned.items()
            if kept[0] >= before
        }

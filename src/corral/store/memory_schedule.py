"""Schedules and notices in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from corral.core.tasks.schedule import Schedule
from corral.core.tasks.task import Task
from corral.core.tasks.webhook import Notice, urls_of
from corral.store.memory_shelf import MemoryShelf
from corral.store.schedule import schedule_of, schedule_row


class MemorySchedules(MemoryShelf):
    async def save_schedule(self, schedule: Schedule) -> None:
        # Through the row and back, as a database would give it.
        self._schedules[schedule.name] = schedule_of(schedule_row(schedule))

    async def delete_schedule(self, name: str) -> None:
        self._schedules.pop(name, None)

    async def schedules(self) -> Sequence[Schedule]:
        return [self._schedules[name] for name in sorted(self._schedules)]

    async def advance_schedules(
        self, term: int, moves: Sequence[tuple[datetime, Schedule]]
    ) -> set[str]:
        self._check_term(term)
        moved: set[str] = set()
        for planned, schedule in moves:
            known = self._schedules.get(schedule.name)
            if known is not None and known.next_at == planned:
                self._schedules[schedule.name] = replace(
                    known,
                    next_at=schedule.next_at,
                    last_at=schedule.last_at,
                    last_task_id=schedule.last_task_id,
                    note=schedule_of(schedule_row(schedule)).note,
                )
                moved.add(schedule.name)
        return moved

    async def notices(self, task_ids: Sequence[str] | None = None) -> Sequence[Notice]:
        wanted = None if task_ids is None else set(task_ids)
        return [
            self._notices[place]
            for place in sorted(self._notices)
            if wanted is None or place[0] in wanted
        ]

    async def save_notice(self, notice: Notice) -> None:
        known = self._notices.get((notice.task_id, notice.url))
        if known is not None and known.run == notice.run:
            self._notices[notice.task_id, notice.url] = notice

    async def drop_notices(self, told: Sequence[Notice]) -> None:
        for notice in told:
            known = self._notices.get((notice.task_id, notice.url))
            if known is not None and known.run == notice.run:
                del self._notices[notice.task_id, notice.url]

    def _note(self, task: Task) -> None:
        """Whoever is to be told of this run's end is owed that from now on."""
        for url in urls_of(task.spec.labels):
            self._notices[task.id, url] = Notice(task.id, url, task.run)

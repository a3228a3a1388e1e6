"""Results given again: kept when tasks complete, looked up when tasks are accepted.

Only tasks of types that ask for it pass here. Nothing depends on the cache: what is
lost of it is made once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256

from corral.core.nodes.worker import WorkerSpec
from corral.core.nodes.worker_type import WorkerCode
from corral.core.tasks.job_type import JobType
from corral.core.tasks.options import ResultKey
from corral.core.tasks.outcome import Settlement
from corral.core.tasks.result_cache import (
    KeptResult,
    KeptTotal,
    answered,
    question_of,
    version_of,
)
from corral.core.tasks.task import State, Task, TaskSpec
from corral.errors import CorralError
from corral.manager.cluster.state import WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.group_commit import GroupCommit
from corral.store.base import ResultStore
from corral.store.text import is_storable

log = logging.getLogger(__name__)
_PERIOD_S = 60.0
_TRIM_TO = 0.9
"""Trimming looks at all there is: it makes room for a while, and not for one more."""
_PARTS = 8
"""No result takes more than one part of so many."""
MOST_BYTES = 64 << 20
"""Nor more than this; and so much at most is given to the tasks of one request."""


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """How the cache of a type, or of all, fares; counts are since the last start."""

    hits: int = 0
    misses: int = 0
    kept: KeptTotal = field(default_factory=KeptTotal)

    @property
    def hit_rate(self) -> float | None:
        asked = self.hits + self.misses
        return self.hits / asked if asked else None

    def after(self, *, is_hit: bool) -> CacheFigures:
        return replace(self, hits=self.hits + is_hit, misses=self.misses + (not is_hit))


class ResultCache:
    """`limit_bytes` is for all results together; 0 keeps none."""

    def __init__(self, ctx: ManagerContext, limit_bytes: int) -> None:
        self._cluster = ctx.cluster
        self._store: ResultStore = ctx.store.results
        self._clock = ctx.clock
        self.limit_bytes = limit_bytes
        self._figures: dict[str, CacheFigures] = {}
        self._asked = CacheFigures()
        self._used: dict[str, datetime] = {}
        self._unsaved: dict[str, KeptResult] = {}
        self._makers: dict[str, tuple[WorkerSpec, str]] = {}
        self._saving: asyncio.Task[None] | None = None
        self._finds: GroupCommit[Sequence[str], Mapping[str, KeptResult]]
        self._finds = GroupCommit(self._find)
        ctx.signals.settled.listen(self._on_settled)

    async def load(self) -> None:
        """Take up how much the store has."""
        kept = await self._store.kept_results()
        for name in self._figures.keys() | kept.keys():
            old = self._figures.get(name, CacheFigures())
            self._figures[name] = replace(old, kept=kept.get(name, KeptTotal()))

    def loop(self) -> Loop:
        return Loop("result cache", _PERIOD_S, self.step)

    async def step(self) -> None:
        """Forget what is past its time, or of types that keep nothing any more."""
        now = self._clock.now()
        since = {
            kind.name: now - timedelta(seconds=kind.cache_ttl_s)
            for kind in self._cluster.job_types.values()
            if kind.cache_ttl_s is not None
        }
        for name in [name for name in self._figures if name not in since]:
            del self._figures[name]
        workers = self._cluster.workers
        self._makers = {i: m for i, m in self._makers.items() if i in workers}
        await self._store.prune_results(since)
        await self._trim()

    async def close(self) -> None:
        """Write what is not written yet."""
        if self._saving is not None:
            await self._saving
        with contextlib.suppress(CorralError):
            await self._stamp()

    async def _stamp(self) -> None:
        used, self._used = self._used, {}
        await self._store.use_results(used)

    # on the way in -------------------------------------------------------------
    def marked(self, job_type: JobType, spec: TaskSpec) -> TaskSpec:
        """The task, with its question where the answer is to be kept."""
        if not self.limit_bytes:
            return spec
        question = question_of(job_type, spec, self._cluster.catalogue)
        if question is None:
            return spec
        return replace(spec, options=replace(spec.options, question=question))

    async def answer(self, tasks: Sequence[Task]) -> dict[str, Task]:
        """Those whose answer is known, as they are to be stored, by id."""
        now = self._clock.now()
        keys = {
            task.id: question.key
            for task in tasks
            if (question := task.spec.options.question) is not None
            and is_asked(task.spec, now)
        }
        if not keys:
            return {}
        found = await self._finds.put(sorted(set(keys.values())))
        standing = self._standing(found.values(), now)
        known: dict[str, Task] = {}
        left = MOST_BYTES
        for task in tasks:
            if task.id not in keys:
                continue
            kept = standing.get(keys[task.id])
            if kept is not None and kept.size <= left:
                known[task.id] = answered(task, kept, now)
                self._used[kept.key] = now
                left -= kept.size
            self._count(task.spec.job_type, is_hit=task.id in known)
        return known

    async def _find(
        self, batch: Sequence[Sequence[str]]
    ) -> list[Mapping[str, KeptResult]]:
        keys = {key for keys in batch for key in keys}
        # What is being written is known already.
        unsaved = {key: self._unsaved[key] for key in keys if key in self._unsaved}
        found: dict[str, KeptResult] = {}
        try:
            rest = sorted(keys - unsaved.keys())
            found |= await self._store.find_results(rest)
        except CorralError as error:
            # The tasks run instead; whether they can be stored is said there.
            log.warning("kept results could not be read: %s", error.message)
        found |= unsaved
        return [{key: found[key] for key in keys if key in found} for keys in batch]

    def _standing(
        self, found: Iterable[KeptResult], now: datetime
    ) -> dict[str, KeptResult]:
        """Those that are young enough, and of code that still serves their type."""
        makers: dict[str, set[str]] = {}
        standing: dict[str, KeptResult] = {}
        for kept in found:
            kind = self._cluster.job_types.get(kept.job_type)
            if kind is None or kind.cache_ttl_s is None:
                continue
            if kind.name not in makers:
                makers[kind.name] = self._serving(kind.name)
            serving = makers[kind.name]
            # Where nobody serves the type now, nobody says that its code has changed.
            is_current = not serving or not kept.maker or kept.maker in serving
            is_young = now - kept.made_at < timedelta(seconds=kind.cache_ttl_s)
            if is_current and is_young:
                standing[kept.key] = kept
        return standing

    def _serving(self, job_type: str) -> set[str]:
        """The code that workers run tasks of this type with now."""
        return {
            self._maker(link)
            for link in self._cluster.workers.values()
            if job_type in link.worker.spec.job_types and link.worker.wanted
        }

    def _maker(self, link: WorkerLink) -> str:
        """A worker's class, with its parameters and where its code comes from."""
        spec = link.worker.spec
        known = self._makers.get(link.id)
        if known is not None and known[0] is spec:
            return known[1]
        entry = WorkerCode(spec.worker_class, spec.params, spec.environment)
        maker = spec.entry or sha256(entry.encode()).hexdigest()
        self._makers[link.id] = (spec, maker)
        return maker

    def _count(self, name: str, *, is_hit: bool) -> None:
        old = self._figures.get(name, CacheFigures())
        self._figures[name] = old.after(is_hit=is_hit)
        self._asked = self._asked.after(is_hit=is_hit)

    def fresh(self, key: str) -> KeptResult | None:
        """An answer that has just come, and is being written."""
        return self._unsaved.get(key)

    def found(self, name: str) -> None:
        """What was not known when it was asked for came in time."""
        old = self._figures.get(name, CacheFigures())
        self._figures[name] = replace(old, hits=old.hits + 1, misses=old.misses - 1)
        all_ = self._asked
        self._asked = replace(all_, hits=all_.hits + 1, misses=all_.misses - 1)

    # on the way out ------------------------------------------------------------
    def _on_settled(self, settled: Sequence[tuple[Task, Settlement]]) -> None:
        for task, row in settled:
            question = task.spec.options.question
            if question is None or task.worker_id is None:
                continue
            if row.state is State.COMPLETED:
                self.keep(task, question, row.result)

    def keep(self, task: Task, question: ResultKey, result: str | None) -> None:
        """A marked task has completed: have its result for others, written soon."""
        kind = self._cluster.job_types.get(task.spec.job_type)
        if result is None or kind is None or kind.cache_ttl_s is None:
            return
        # What answers such questions may have changed while the task was under way.
        model = self._cluster.catalogue.get(question.model or "")
        if version_of(kind, model) != question.version or not is_storable(result):
            return
        link = self._cluster.workers.get(task.worker_id or "")
        maker = self._maker(link) if link is not None else ""
        now = self._clock.now()
        row = KeptResult(question.key, kind.name, task.id, result, now, maker)
        if row.size > min(self.limit_bytes // _PARTS, MOST_BYTES):
            return
        self._unsaved[row.key] = row
        if self._saving is None:
            self._saving = asyncio.create_task(self._save())

    async def _save(self) -> None:
        try:
            while self._unsaved:
                rows = list(self._unsaved.values())
                replaced = await self._store.save_results(rows, self._clock.now())
                for row in rows:
                    if self._unsaved.get(row.key) is row:
                        del self._unsaved[row.key]
                    self._add(row, replaced.get(row.key))
                if self.figures().kept.size > self.limit_bytes:
                    await self._trim()
        except CorralError as error:
            self._unsaved.clear()
            log.warning("results could not be kept: %s", error.message)
        finally:
            self._saving = None

    def _add(self, row: KeptResult, replaced: int | None) -> None:
        old = self._figures.get(row.job_type, CacheFigures())
        entries = old.kept.entries + (replaced is None)
        kept = KeptTotal(entries, old.kept.size + row.size - (replaced or 0))
        self._figures[row.job_type] = replace(old, kept=kept)

    async def _trim(self) -> None:
        await self.load()
        if self.figures().kept.size > self.limit_bytes:
            await self._stamp()
            await self._store.trim_results(int(self.limit_bytes * _TRIM_TO))
            await self.load()

    # what people ask -----------------------------------------------------------
    def figures(self, job_type: str | None = None) -> CacheFigures:
        """Of one type, or of all together, also of those that are no more."""
        if job_type is not None:
            return self._figures.get(job_type, CacheFigures())
        every = [each.kept for each in self._figures.values()]
        entries, size = sum(k.entries for k in every), sum(k.size for k in every)
        return replace(self._asked, kept=KeptTotal(entries, size))

    def by_type(self) -> Mapping[str, CacheFigures]:
        """Of each type that keeps results."""
        return self._figures

    async def clear(self, job_type: str) -> int:
        """Forget all that is kept of a type; how many results there were."""
        await self.close()
        count = await self._store.clear_results(job_type)
        await self.load()
        return count


def is_asked(spec: TaskSpec, now: datetime) -> bool:
    """May a result of before answer this task?"""
    if spec.options.question is None or spec.options.no_cache:
        return False
    return spec.run_after is None or spec.run_after <= now

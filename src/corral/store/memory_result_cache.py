"""Results kept to answer the same question again, in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from corral.core.tasks.result_cache import KeptResult, KeptTotal
from corral.store.memory_shelf import MemoryShelf


class MemoryResults(MemoryShelf):
    async def save_results(
        self, rows: Sequence[KeptResult], now: datetime
    ) -> Mapping[str, int]:
        replaced: dict[str, int] = {}
        for row in rows:
            if (known := self._results.get(row.key)) is not None:
                replaced[row.key] = known[1].size
            self._results[row.key] = (now, row)
        return replaced

    async def find_results(self, keys: Sequence[str]) -> Mapping[str, KeptResult]:
        return {key: self._results[key][1] for key in keys if key in self._results}

    async def use_results(self, used: Mapping[str, datetime]) -> None:
        for key, at in used.items():
            if key in self._results:
                self._results[key] = (at, self._results[key][1])

    async def kept_results(self) -> Mapping[str, KeptTotal]:
        totals: dict[str, KeptTotal] = {}
        for _, row in self._results.values():
            known = totals.get(row.job_type, KeptTotal())
            totals[row.job_type] = KeptTotal(known.entries + 1, known.size + row.size)
        return totals

    async def clear_results(self, job_type: str) -> int:
        rows = self._results.items()
        return self._forget([k for k, (_, r) in rows if r.job_type == job_type])

    async def prune_results(self, since: Mapping[str, datetime]) -> int:
        def is_old(row: KeptResult) -> bool:
            return row.job_type not in since or row.made_at < since[row.job_type]

        return self._forget([k for k, (_, r) in self._results.items() if is_old(r)])

    async def trim_results(self, limit_bytes: int) -> int:
        by_key = sorted(self._results.items())
        total, old = 0, []
        for key, (_, row) in sorted(by_key, key=lambda i: i[1][0], reverse=True):
            total += row.size
            if total > limit_bytes:
                old.append(key)
        return self._forget(old)

    def _forget(self, keys: Collection[str]) -> int:
        for key in keys:
            del self._results[key]
        return len(keys)

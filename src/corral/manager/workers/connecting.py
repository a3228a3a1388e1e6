"""Job types that workers were connected to by URL, before there was such a worker.

Kept in memory: a manager that restarts forgets who is awaited, and the call is made
again.
"""

from __future__ import annotations

from dataclasses import replace

from corral.core.nodes.worker import WorkerSpec

_KEPT = 1000


class Connecting:
    def __init__(self) -> None:
        self._awaited: dict[str, tuple[str, ...]] = {}

    def expect(self, url: str, job_type: str) -> None:
        """Connect the worker of this URL to a job type as soon as there is one."""
        key = url.rstrip("/")
        self._awaited[key] = (*self._awaited.pop(key, ()), job_type)
        while len(self._awaited) > _KEPT:
            del self._awaited[next(iter(self._awaited))]

    def complete(self, spec: WorkerSpec, old: WorkerSpec | None = None) -> WorkerSpec:
        """The spec with the types its worker was connected to, or is awaited for."""
        if spec.url is None:
            return spec
        awaited = self._awaited.pop(spec.url.rstrip("/"), ())
        kept = old.job_types if old and old.url == spec.url else ()
        types = dict.fromkeys((*spec.job_types, *kept, *awaited))
        return replace(spec, job_types=tuple(types))

"""What this agent started, on disk before it starts: its successor cleans up by it."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from corral.agent.link.identity import write_private
from corral.process import spawn

LOG = logging.getLogger("corral.agent")


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """One start of a worker; pid and start time are known only after it."""

    mark: str
    worker_id: str
    pid: int | None = None
    started: float | None = None


class WorkerJournal:
    """The living workers of one agent, as a small file in its folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.json"
        self._lock = threading.Lock()
        self._entries: dict[str, WorkerStart] = {}

    def end_orphans(self) -> int:
        """Kill what a former agent of this folder left running; how many."""
        former = self._read()
        for entry in former:
            if entry.pid is not None and entry.started is not None:
                spawn.kill_recorded(spawn.ProcessIdentity(entry.pid, entry.started))
        ended = spawn.kill_marked([entry.mark for entry in former])
        if former:
            LOG.warning(
                "cleaned up after a former agent that left %d workers", len(former)
            )
        with self._lock:
            self._write()
        return ended

    def begin(self, worker_id: str) -> str:
        """Write down that a worker is about to start; the mark it must carry.

        Raises:
            OSError: when it cannot be written; then nothing may be started.
        """
        entry = WorkerStart(mark=uuid.uuid4().hex, worker_id=worker_id)
        with self._lock:
            self._entries[entry.mark] = entry
            try:
                self._write()
            except OSError:
                del self._entries[entry.mark]
                raise
        return entry.mark

    def started(self, mark: str, pid: int) -> None:
        with self._lock:
            known = spawn.identity_of(pid)
            self._entries[mark] = replace(
                self._entries[mark], pid=pid, started=known.started if known else None
            )
            self._try_write()

    def ended(self, mark: str) -> None:
        with self._lock:
            self._entries.pop(mark, None)
            self._try_write()

    def _try_write(self) -> None:
        # The mark was written before the start, and finds the worker by itself: a
        # full disk is no reason to end one that runs.
        try:
            self._write()
        except OSError as error:
            LOG.warning("cannot write the journal: %s", error)

    def _write(self) -> None:
        rows = [asdict(entry) for entry in self._entries.values()]
        write_private(self._path, json.dumps(rows))

    def _read(self) -> list[WorkerStart]:
        try:
            rows = json.loads(self._path.read_text(encoding="utf-8"))
            return [WorkerStart(**row) for row in rows]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError) as error:
            LOG.warning("the journal of a former agent cannot be read: %s", error)
            return []

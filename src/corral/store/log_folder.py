"""Log chunks as files. A task id is data, so what becomes a path is made of it here."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from corral.store.base import LogChunk

# Safe as a name on every system, also where case does not tell two names apart.
_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


def folder_name(task_id: str) -> str:
    """The id itself where it is a harmless name, else what is left of it and a hash."""
    if _SAFE.fullmatch(task_id):
        return task_id
    rest = re.sub(r"[^a-z0-9_-]", "_", task_id.lower())[:64]
    return f"{rest}.{_hash(task_id)[:16]}"


def _hash(task_id: str) -> str:
    return hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()


class LogFolder:
    """`logs/<two hex digits>/<task>/<attempt>-<seq>.json` under the object folder."""

    def __init__(self, object_dir: Path) -> None:
        self._root = object_dir / "logs"

    def write(self, chunks: Iterable[LogChunk]) -> None:
        for chunk in chunks:
            path = self._file(chunk.task_id, chunk.attempt, chunk.seq)
            if path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            # Whole or not at all: a reader or a crash never meets half a chunk.
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(chunk.lines, encoding="utf-8")
            part.replace(path)

    def read(self, task_id: str, attempt: int, seq: int) -> str | None:
        """None when the file is gone."""
        try:
            return self._file(task_id, attempt, seq).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def remove(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            shutil.rmtree(self._folder(task_id), ignore_errors=True)

    def _folder(self, task_id: str) -> Path:
        return self._root / _hash(task_id)[:2] / folder_name(task_id)

    def _file(self, task_id: str, attempt: int, seq: int) -> Path:
        return self._folder(task_id) / f"{int(attempt)}-{int(seq)}.json"

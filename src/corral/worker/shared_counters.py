"""Two numbers for each order that supervisor and runner share through a mapped file.

`current` is the index in the batch that is running, `limit` the last index that may
start. The runner stores `current` before it reads `limit`; the supervisor stores
`limit` before it reads `current`. So a task past the limit that the supervisor did
not see in `current` never starts.
"""

from __future__ import annotations

import contextlib
import copy
import mmap
import os
import tempfile
import time
from pathlib import Path

CURRENT, LIMIT = 0, 1
NONE = -1
"""`current`: no task is running."""
WHOLE = -2
"""`current`: run_batch has the whole batch."""
NO_LIMIT = 2**62
SIZE = 16
# A store can still sit in the other core's buffer when we read; it is out long
# before this has passed, so no fence is needed on the runner's hot path.
SETTLE_S = 0.001


class SharedCells:
    """The mapped file. `words` is what hot loops index directly."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._all = memoryview(self._map).cast("q")
        self.words = self._all[: SIZE // 8]

    @property
    def file(self) -> Path:
        return Path(self.path)

    def of_lane(self, number: int) -> SharedCells:
        """The numbers of another order, in the same file."""
        cells = copy.copy(self)
        cells.words = self._all[number * SIZE // 8 : (number + 1) * SIZE // 8]
        return cells

    @classmethod
    def create(cls, lanes: int = 1) -> SharedCells:
        # Late: a runner imports this module, too, and has nothing but msgspec.
        from corral.worker import temporary

        temporary.forget_dead("cell")
        handle, path = tempfile.mkstemp(prefix=temporary.prefix("cell"))
        with open(handle, "wb") as file:
            file.write(bytes(SIZE * lanes))
        cells = cls(path)
        for number in range(lanes):
            cells.of_lane(number).reset()
        return cells

    @property
    def current(self) -> int:
        return self.words[CURRENT]

    @property
    def limit(self) -> int:
        return self.words[LIMIT]

    def reset(self) -> None:
        """Before a new batch, while the runner waits for it."""
        self.words[CURRENT] = NONE
        self.words[LIMIT] = NO_LIMIT

    def stop_after_current(self) -> None:
        """Let nothing start after the running task.

        Whatever is past the `current` that is read after this never starts.
        """
        # The first task may always start, so that every order makes headway.
        self.words[LIMIT] = max(self.current, 0)
        time.sleep(SETTLE_S)

    def unlink(self) -> None:
        """Take away the name once both sides have it mapped (not on Windows)."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)

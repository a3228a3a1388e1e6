"""Time and ids are made here and nowhere below."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from datetime import UTC, datetime


class Clock:
    """Wall time for the record, monotonic time for leases."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """The time between two steps of a loop."""
        await asyncio.sleep(seconds)


def new_task_id() -> str:
    """A time-ordered id (UUID version 7 layout), so that index inserts stay local."""
    millis = time.time_ns() // 1_000_000
    rand = int.from_bytes(os.urandom(10))
    value = (millis & ((1 << 48) - 1)) << 80 | 0x7 << 76 | ((rand >> 62) & 0xFFF) << 64
    value |= 0x2 << 62 | (rand & ((1 << 62) - 1))
    return str(uuid.UUID(int=value))


def new_id(prefix: str) -> str:
    return f"{prefix}-{os.urandom(5).hex()}"

"""Hardware errors of NVIDIA cards: what the driver counts, and its Xid events.

Events are taken without waiting. Where the library gives none, the kernel's log has
them, if this user may read it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

# Xids that say what an application did: its card is not to blame.
_OF_APPLICATIONS = frozenset({13, 31, 43, 45, 68, 69, 109})
_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
_MOST = 1000


class NvidiaErrors:
    """Counts for as long as the library is open; its first reading is all zeros."""

    def __init__(self, nvml: ModuleType, log: Path = Path("/dev/kmsg")) -> None:
        self._nvml = nvml
        self._xids: Counter[tuple[str, int]] = Counter()
        self._slowed: dict[str, bool] = {}
        self._slowdowns: Counter[str] = Counter()
        self._watched: set[str] = set()
        self._events = self._ask(lambda: nvml.nvmlEventSetCreate())
        self._log = KernelLog(log)

    def read(self, handle: Any, uuid: str, address: str | None) -> dict[str, int]:
        """What is known of one card by now, by kind."""
        self._watch(handle, uuid)
        self._drain()
        self._note_slowdown(handle, uuid)
        found = self._counters(handle)
        if uuid in self._slowed:
            found["thermal_slowdown"] = self._slowdowns[uuid]
        for (name, xid), count in sorted(self._xids.items()):
            if name == uuid or (address and address.startswith(name)):
                found[f"xid_{xid}"] = count
        return found

    def close(self) -> None:
        if self._events is not None:
            self._ask(lambda: self._nvml.nvmlEventSetFree(self._events))
        self._log.close()

    def _watch(self, handle: Any, uuid: str) -> None:
        if uuid in self._watched:
            return
        self._watched.add(uuid)
        nvml = self._nvml
        if self._events is None or not self._does(
            lambda: nvml.nvmlDeviceRegisterEvents(
                handle, nvml.nvmlEventTypeXidCriticalError, self._events
            )
        ):
            self._log.open()

    def _drain(self) -> None:
        nvml = self._nvml
        for _ in range(_MOST if self._events is not None else 0):
            event = self._ask(lambda: nvml.nvmlEventSetWait_v2(self._events, 0))
            if event is None:
                break
            uuid = self._ask(partial(nvml.nvmlDeviceGetUUID, event.device))
            self._count(str(uuid), int(event.eventData))
        for place, xid in self._log.read():
            self._count(place, xid)

    def _count(self, card: str, xid: int) -> None:
        if xid not in _OF_APPLICATIONS:
            self._xids[card, xid] += 1

    def _note_slowdown(self, handle: Any, uuid: str) -> None:
        """The driver tells only whether a card is slowed down now: beginnings count."""
        nvml = self._nvml
        reasons = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        if reasons is None:
            return
        is_slowed = bool(reasons & nvml.nvmlClocksEventReasonHwThermalSlowdown)
        if is_slowed and not self._slowed.get(uuid, is_slowed):
            self._slowdowns[uuid] += 1
        self._slowed[uuid] = is_slowed

    def _counters(self, handle: Any) -> dict[str, int]:
        nvml = self._nvml
        found = {
            "ecc_uncorrected": self._ask(
                lambda: nvml.nvmlDeviceGetTotalEccErrors(
                    handle,
                    nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                    nvml.NVML_VOLATILE_ECC,
                )
            ),
            "pages_pending": self._ask(
                lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)
            ),
        }
        rows = self._ask(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        if rows is not None:
            found |= {"rows_pending": rows[2], "rows_failed": rows[3]}
        return {kind: int(n) for kind, n in found.items() if n is not None}

    def _ask(self, question: Callable[[], Any]) -> Any:
        """None for what this card, driver or version of the library does not tell."""
        try:
            return question()
        except self._nvml.NVMLError_GpuIsLost:
            raise
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _does(self, wish: Callable[[], Any]) -> bool:
        try:
            wish()
        except (self._nvml.NVMLError, AttributeError):
            return False
        return True


class KernelLog:
    """New lines of the kernel's log; nothing where it may not be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def open(self) -> None:
        if self._fd is None:
            with contextlib.suppress(OSError):
                flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
                self._fd = os.open(self._path, flags)
                os.lseek(self._fd, 0, os.SEEK_END)

    def read(self) -> Iterator[tuple[str, int]]:
        """Place on the bus (without function) and Xid of what is new."""
        for _ in range(_MOST if self._fd is not None else 0):
            try:
                data = os.read(self._fd or 0, 8192)
            except BrokenPipeError:
                # Lines were overwritten before they were read: go on after them.
                continue
            except OSError:
                return
            if not data:
                return
            for place, xid in _LINE.findall(data.decode("utf-8", "replace")):
                yield place.lower(), int(xid)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

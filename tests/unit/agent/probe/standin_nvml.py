"""A stand-in for NVIDIA's library, with cards as in the file STANDIN_NVML.

It is found as `pynvml` before the real one when its folder comes first on the path.
"""
# ruff: noqa: N801, N802, N816 - the names are NVIDIA's

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_TEMPERATURE_GPU = 0
NVML_DEVICE_MIG_ENABLE = 1
nvmlMemory_v2 = 2
MIB = 1 << 20
H200 = {
    "uuid": "GPU-6d1b2f60-3b0e-9f5d-7a5a-0f8e5f1c2a10",
    "name": "NVIDIA H200",
    "bus": "00000000:19:00.0",
    "total": 143771,
    "used": 4,
}


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_Timeout(NVMLError):
    pass


NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
nvmlEventTypeXidCriticalError = 8
nvmlClocksEventReasonHwThermalSlowdown = 64


def nvmlEventSetCreate() -> list[Any]:
    return []


def nvmlEventSetFree(events: list[Any]) -> None:
    pass


def nvmlDeviceRegisterEvents(card: Any, kinds: int, events: list[Any]) -> None:
    if "xids" not in card:
        raise NVMLError_NotSupported("Not Supported")
    events.append({"device": card, "seen": 0})


def nvmlEventSetWait_v2(events: list[Any], timeout_ms: int) -> Any:
    assert timeout_ms == 0, "it must not wait"
    for row in events:
        uuid = row["device"]["uuid"]
        xids = next(c.get("xids", []) for c in _cards() if c["uuid"] == uuid)
        if row["seen"] < len(xids):
            row["seen"] += 1
            event = {"device": row["device"], "eventData": xids[row["seen"] - 1]}
            return SimpleNamespace(**event)
    raise NVMLError_Timeout("Timeout")


def nvmlDeviceGetTotalEccErrors(card: dict[str, Any], kind: int, counter: int) -> int:
    if "ecc" not in card:
        raise NVMLError_NotSupported("Not Supported")
    return int(card["ecc"])


def nvmlDeviceGetRemappedRows(card: dict[str, Any]) -> tuple[int, int, int, int]:
    return 0, 0, card.get("rows_pending", 0), 0


def nvmlDeviceGetCurrentClocksEventReasons(card: dict[str, Any]) -> int:
    return 64 if card.get("is_slowed") else 1


def _told() -> dict[str, Any]:
    return dict(json.loads(Path(os.environ["STANDIN_NVML"]).read_text("utf-8")))


def nvmlInit() -> None:
    told = _told()
    if told.get("hangs_s"):
        threading.Event().wait(told["hangs_s"])
    if told.get("prints"):
        os.write(1, b"a library that writes where it should not\n")
    if told.get("dies"):
        os._exit(11)
    if told.get("raises"):
        raise NVMLError(told["raises"])
    if told.get("missing"):
        raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")


def nvmlShutdown() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return str(_told().get("driver", "580.159.03"))


def _cards() -> list[dict[str, Any]]:
    return list(_told().get("cards", [H200]))


def nvmlDeviceGetCount() -> int:
    if _told().get("is_lost"):
        raise NVMLError("Driver/library version mismatch")
    return len(_cards())


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    card = _cards()[index]
    if card.get("is_lost"):
        raise NVMLError_GpuIsLost("GPU is lost")
    return card


def nvmlDeviceGetUUID(card: dict[str, Any]) -> str:
    return str(card["uuid"])


def nvmlDeviceGetName(card: dict[str, Any]) -> Any:
    return card["name"].encode() if card.get("is_old") else card["name"]


def nvmlDeviceGetPciInfo(card: dict[str, Any]) -> Any:
    return SimpleNamespace(busId=card["bus"])


def nvmlDeviceGetMemoryInfo(card: dict[str, Any], version: Any = None) -> Any:
    if "total" not in card:
        raise NVMLError_NotSupported("Not Supported")
    total, used = card["total"] * MIB, card["used"] * MIB
    return SimpleNamespace(total=total, used=used, free=total - used)


def nvmlDeviceGetPowerUsage(card: dict[str, Any]) -> int:
    return 76_543


def nvmlDeviceGetTemperature(card: dict[str, Any], sensor: int) -> int:
    return 31


def nvmlDeviceGetUtilizationRates(card: dict[str, Any]) -> Any:
    if "parts" in card or "is_part" in card:
        raise NVMLError_NotSupported("Not Supported")
    return SimpleNamespace(gpu=7, memory=0)


def nvmlDeviceGetCudaComputeCapability(card: dict[str, Any]) -> tuple[int, int]:
    return 9, 0


def nvmlDeviceGetMigMode(card: dict[str, Any]) -> list[int]:
    if "parts" not in card:
        raise NVMLError_NotSupported("Not Supported")
    return [1, 1]


def nvmlDeviceGetMaxMigDeviceCount(card: dict[str, Any]) -> int:
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(card: dict[str, Any], at: int) -> Any:
    if at >= len(card["parts"]):
        raise NVMLError_NotFound("Not Found")
    return {**card["parts"][at], "is_part": True}


def nvmlDeviceGetComputeRunningProcesses(card: dict[str, Any]) -> list[Any]:
    rows = card.get("processes", [])
    return [SimpleNamespace(pid=pid, usedGpuMemory=mb * MIB) for pid, mb in rows]


def nvmlDeviceGetGraphicsRunningProcesses(card: dict[str, Any]) -> list[Any]:
    return []

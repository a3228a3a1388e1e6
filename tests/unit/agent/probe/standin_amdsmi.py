"""A stand-in for AMD's binding, answering in the shapes of its version 7.0.2."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

AmdSmiTemperatureType = SimpleNamespace(HOTSPOT=1, EDGE=0)
AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)


class AmdSmiException(Exception):
    pass


def amdsmi_init() -> None:
    pass


def amdsmi_shut_down() -> None:
    pass


def amdsmi_get_processor_handles() -> list[str]:
    return ["0000:03:00.0", "0000:83:00.0"]


def amdsmi_get_gpu_device_bdf(handle: str) -> str:
    return handle


def amdsmi_get_gpu_asic_info(handle: str) -> dict[str, Any]:
    serial = "0x9246000000000001" if handle == "0000:03:00.0" else "N/A"
    return {
        "market_name": "AMD Radeon RX 6800 XT",
        "asic_serial": serial,
        "target_graphics_version": "gfx1030",
    }


def amdsmi_get_gpu_vram_usage(handle: str) -> dict[str, int]:
    return {"vram_total": 16368, "vram_used": 660}


def amdsmi_get_gpu_driver_info(handle: str) -> dict[str, str]:
    return {"driver_name": "amdgpu", "driver_version": "6.18.3"}


def amdsmi_get_power_info(handle: str) -> dict[str, Any]:
    return {"current_socket_power": "N/A", "average_socket_power": 35}


def amdsmi_get_gpu_activity(handle: str) -> dict[str, Any]:
    return {"gfx_activity": 12, "umc_activity": "N/A"}


def amdsmi_get_temp_metric(handle: str, sensor: int, metric: int) -> int:
    if sensor == AmdSmiTemperatureType.HOTSPOT:
        raise AmdSmiException("AMDSMI_STATUS_NOT_SUPPORTED")
    return 44


def amdsmi_get_gpu_process_list(handle: str) -> list[dict[str, Any]]:
    memory = {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": 512 << 20}
    return [{"name": "python3", "pid": 4711, "mem": 1, "memory_usage": memory}]

"""NVIDIA cards and their MIG instances, as the driver's own library tells.

A question the card does not answer leaves its field empty; nothing is guessed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import psutil

from corral.agent.probe.base import MIB, ProbeResult, free_mb
from corral.agent.probe.nvidia_error import NvidiaErrors
from corral.core.nodes.gpu import Gpu, GpuProcess


class NvidiaProbe:
    """Keeps NVML open: on a machine without persistence mode, closing it makes the
    driver shut the card down and start it anew at the next reading.
    """

    def __init__(self, library: str = "pynvml") -> None:
        self._name = library
        self._nvml: ModuleType | None = None
        self._errors: NvidiaErrors | None = None

    def read(self) -> ProbeResult:
        if self._nvml is None:
            try:
                nvml = importlib.import_module(self._name)
            except ImportError:
                return ProbeResult(absent="the package nvidia-ml-py is not installed")
            try:
                nvml.nvmlInit()
            except (
                nvml.NVMLError_LibraryNotFound,
                nvml.NVMLError_DriverNotLoaded,
            ) as error:
                return ProbeResult(absent=f"no NVIDIA driver: {error}")
            self._nvml = nvml
            self._errors = NvidiaErrors(nvml)
        gpus = tuple(self._cards(self._nvml))
        return ProbeResult(gpus, None if gpus else "the NVIDIA driver has no card")

    def close(self) -> None:
        if self._errors is not None:
            self._errors.close()
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
        self._nvml = self._errors = None

    def _cards(self, nvml: ModuleType) -> Iterator[Gpu]:
        driver = nvml.nvmlSystemGetDriverVersion()
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                card = _Card(nvml, handle, index, _text(driver), self._errors)
                yield from card.read()
            except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_NotFound):
                # Fallen off the bus: it has no name any more, and is missed by that.
                continue


class _Card:
    """One card for the length of one reading."""

    def __init__(
        self,
        nvml: ModuleType,
        handle: Any,
        index: int,
        driver: str,
        errors: NvidiaErrors | None,
    ) -> None:
        self._nvml = nvml
        self._counted = errors
        self._handle = handle
        self._index = index
        self._driver = driver

    def read(self) -> Iterator[Gpu]:
        nvml, handle = self._nvml, self._handle
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        name = _text(nvml.nvmlDeviceGetName(handle))
        self._errors = self._read_errors(uuid)
        yield self._gpu(uuid, name, self._index, handle)
        yield from self._instances(uuid, name)

    def _read_errors(self, uuid: str) -> dict[str, int]:
        if self._counted is None:
            return {}
        return self._counted.read(self._handle, uuid, self._address())

    def _gpu(
        self, uuid: str, name: str, index: int, handle: Any, parent: str | None = None
    ) -> Gpu:
        nvml, card = self._nvml, self._handle
        total, used, free, is_shared = self._memory(handle)
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage, card)
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        capability = self._ask(nvml.nvmlDeviceGetCudaComputeCapability, card)
        return Gpu(
            id=uuid,
            vendor="nvidia",
            name=name,
            vendor_index=index,
            pci_address=self._address(),
            memory_total_mb=total,
            memory_used_mb=used,
            memory_free_mb=free,
            utilization_percent=None if rates is None else float(rates.gpu),
            temperature_c=self._ask(
                nvml.nvmlDeviceGetTemperature, card, nvml.NVML_TEMPERATURE_GPU
            ),
            power_w=None if milliwatts is None else milliwatts / 1000,
            driver=self._driver,
            compute="{}.{}".format(*capability) if capability else None,
            shares_memory=is_shared,
            mig_parent=parent,
            errors=self._errors,
            processes=tuple(self._processes(handle)),
        )

    def _memory(
        self, handle: Any
    ) -> tuple[float | None, float | None, float | None, bool]:
        """Total, used, free in MB as nvidia-smi shows them; is it the machine's?"""
        nvml = self._nvml
        # The first version counts what the driver reserves as used.
        told = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        try:
            told = told or nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError_NotSupported:
            return self._shared_memory(handle)
        return told.total / MIB, told.used / MIB, told.free / MIB, False

    def _shared_memory(
        self, handle: Any
    ) -> tuple[float | None, float | None, float | None, bool]:
        """One chip with the processor, as GB10, has the machine's memory."""
        if handle is not self._handle or self._nvml.nvmlDeviceGetCount() != 1:
            return None, None, None, False
        memory = psutil.virtual_memory()
        used = (memory.total - memory.available) / MIB
        total = memory.total / MIB
        return total, used, free_mb(total, used), True

    def _instances(self, parent: str, name: str) -> Iterator[Gpu]:
        nvml, handle = self._nvml, self._handle
        mode = self._ask(nvml.nvmlDeviceGetMigMode, handle)
        if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
            except nvml.NVMLError_NotFound:
                continue
            uuid = _text(nvml.nvmlDeviceGetUUID(part))
            own = self._ask(nvml.nvmlDeviceGetName, part)
            label = _text(own) if own and _text(own) != name else f"{name} MIG"
            yield self._gpu(uuid, label, self._index, part, parent)

    def _processes(self, handle: Any) -> Iterator[GpuProcess]:
        nvml = self._nvml
        seen: dict[int, int | None] = {}
        for question in (
            nvml.nvmlDeviceGetComputeRunningProcesses,
            nvml.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            for row in self._ask(question, handle) or ():
                seen[row.pid] = row.usedGpuMemory or seen.get(row.pid)
        for pid, used in sorted(seen.items()):
            yield GpuProcess(pid, memory_mb=None if used is None else used / MIB)

    def _address(self) -> str | None:
        pci = self._ask(self._nvml.nvmlDeviceGetPciInfo, self._handle)
        # With a domain of eight digits, where Linux writes four.
        return None if pci is None else _text(pci.busId).lower()[-12:]

    def _ask(self, question: Callable[..., Any], *about: Any) -> Any:
        """None for what this card or driver does not tell."""
        try:
            return question(*about)
        except self._nvml.NVMLError_GpuIsLost:
            raise
        except self._nvml.NVMLError:
            return None


def _text(value: Any) -> str:
    """Older versions of the library answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

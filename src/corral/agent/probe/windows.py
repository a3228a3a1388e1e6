"""GPUs of a Windows machine as DirectX lists them (DXGI), for cards without NVML.

DirectX tells what a card is and how much memory it has, to anybody; how much of it
others use it does not tell.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from corral.agent.probe.base import MIB, ProbeResult
from corral.core.nodes.gpu import Gpu

_VENDORS = {0x10DE: "nvidia", 0x1002: "amd", 0x8086: "intel", 0x5143: "qualcomm"}
_SOFTWARE = 2
_NOT_FOUND = 0x887A0002
# {770aae78-f26f-4dba-a829-253c83d1b387}, IDXGIFactory1
_FACTORY = (ctypes.c_ubyte * 16)(*bytes.fromhex("78ae0a776ff2ba4da829253c83d1b387"))
# Places in the tables of functions of IUnknown, IDXGIFactory1 and IDXGIAdapter1.
_RELEASE, _ENUM_ADAPTERS, _GET_DESC = 2, 12, 10


class AdapterDesc(ctypes.Structure):
    """DXGI_ADAPTER_DESC1."""

    _fields_ = (
        ("description", ctypes.c_wchar * 128),
        ("vendor_id", ctypes.c_uint),
        ("device_id", ctypes.c_uint),
        ("subsystem_id", ctypes.c_uint),
        ("revision", ctypes.c_uint),
        ("dedicated_video_memory", ctypes.c_size_t),
        ("dedicated_system_memory", ctypes.c_size_t),
        ("shared_system_memory", ctypes.c_size_t),
        ("luid", ctypes.c_longlong),
        ("flags", ctypes.c_uint),
    )


class WindowsProbe:
    def read(self) -> ProbeResult:
        if sys.platform != "win32":
            return ProbeResult(absent="DirectX is on Windows only")
        found = tuple(gpus(adapters()))
        return ProbeResult(found, None if found else "DirectX lists no card")

    def close(self) -> None:
        """Nothing is kept open."""


def gpus(told: Iterable[Any]) -> Iterator[Gpu]:
    """Cards of these adapters; NVIDIA's are left to NVML, which knows them better."""
    seen: dict[str, int] = {}
    for index, row in enumerate(told):
        vendor = _VENDORS.get(row.vendor_id, "other")
        if row.flags & _SOFTWARE or vendor == "nvidia":
            continue
        kind = f"{row.vendor_id:04x}-{row.device_id:04x}-{row.subsystem_id:08x}"
        # The address of a card is not told; equal ones are told apart by their order.
        seen[kind] = seen.get(kind, -1) + 1
        own_mb = row.dedicated_video_memory / MIB
        is_integrated = own_mb < 1024 and row.shared_system_memory > 0
        shared_mb = row.shared_system_memory / MIB
        yield Gpu(
            id=f"dxgi-{kind}-{seen[kind]}",
            vendor=vendor,
            name=row.description,
            vendor_index=index,
            memory_total_mb=shared_mb if is_integrated else own_mb,
            is_integrated=is_integrated,
            shares_memory=is_integrated,
        )


def adapters() -> Iterator[AdapterDesc]:
    """What DXGI enumerates; the interfaces are released again."""
    dxgi: Any = ctypes.CDLL("dxgi")
    factory = ctypes.c_void_p()
    _check(dxgi.CreateDXGIFactory1(ctypes.byref(_FACTORY), ctypes.byref(factory)))
    try:
        index = 0
        while (adapter := _adapter(factory, index)) is not None:
            desc = AdapterDesc()
            try:
                _check(_call(adapter, _GET_DESC, ctypes.byref(desc)))
            finally:
                _call(adapter, _RELEASE)
            yield desc
            index += 1
    finally:
        _call(factory, _RELEASE)


def _adapter(factory: ctypes.c_void_p, index: int) -> ctypes.c_void_p | None:
    found = ctypes.c_void_p()
    code = _call(factory, _ENUM_ADAPTERS, ctypes.c_uint(index), ctypes.byref(found))
    if code & 0xFFFFFFFF == _NOT_FOUND:
        return None
    _check(code)
    return found


def _call(this: ctypes.c_void_p, place: int, *about: Any) -> int:
    """A method of a COM interface, by its place in the interface's table."""
    table = ctypes.cast(this, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
    is_number = [isinstance(word, ctypes.c_uint) for word in about]
    kinds = [ctypes.c_uint if number else ctypes.c_void_p for number in is_number]
    method = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, *kinds)(table[place] or 0)
    return int(method(this, *about))


def _check(code: int) -> None:
    if code < 0:
        raise OSError(f"DirectX answered {code & 0xFFFFFFFF:#x}")

"""How long ago somebody typed or moved a mouse at this machine: a seam per system.

None where that cannot be known; nobody is then taken to be there.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

_TOOL_S = 3.0
_GRAPHICAL = frozenset({"x11", "wayland", "mir"})


def idle_s() -> float | None:
    """Seconds since the last input of anybody, None when unknown."""
    if sys.platform == "darwin":
        return read_ioreg(_say("/usr/sbin/ioreg", "-c", "IOHIDSystem"))
    if sys.platform == "win32":
        return _windows()
    now = time.time()
    terminals = [user.terminal for user in psutil.users() if user.terminal]
    found = [terminal_idle_s(terminals, now), _session_idle_s(now)]
    return min((s for s in found if s is not None), default=None)


def terminal_idle_s(
    terminals: Iterable[str], now: float, devices: Path = Path("/dev")
) -> float | None:
    """Terminals of who is logged in: the kernel stamps them when they are read."""
    stamps = []
    for name in terminals:
        # Displays such as `:0` are no devices.
        with contextlib.suppress(OSError):
            stamps.append((devices / name).stat().st_atime)
    return max(0.0, now - max(stamps)) if stamps else None


def _session_idle_s(now: float) -> float | None:
    listed = _say("loginctl", "list-sessions", "--no-legend")
    names = [line.split()[0] for line in listed.splitlines() if line.split()]
    wanted = ("Type", "State", "IdleHint", "IdleSinceHint")
    flags = [f"--property={name}" for name in wanted]
    return read_sessions(_say("loginctl", "show-session", *flags, *names), now)


def read_sessions(text: str, now: float) -> float | None:
    """What logind says of graphical sessions, properties by session."""
    found = []
    for block in text.split("\n\n"):
        told = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if told.get("Type") not in _GRAPHICAL or told.get("State") == "closing":
            continue
        if told.get("IdleHint") == "no":
            found.append(0.0)
        elif (since := told.get("IdleSinceHint", "")).isdigit():
            found.append(max(0.0, now - int(since) / 1e6))
    return min(found, default=None)


def read_ioreg(text: str) -> float | None:
    """A Mac counts it in nanoseconds."""
    found = re.search(r'"HIDIdleTime"\s*=\s*(\d+)', text)
    return int(found[1]) / 1e9 if found else None


def _windows() -> float | None:
    if sys.platform != "win32":
        return None
    import ctypes

    class LastInput(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint), ("tick", ctypes.c_uint))

    info = LastInput(ctypes.sizeof(LastInput), 0)
    if not ctypes.windll.user32.GetLastInputInfo(ctypes.byref(info)):
        return None
    # Both count milliseconds since the start in 32 bits, and begin again together.
    now = ctypes.windll.kernel32.GetTickCount() & 0xFFFFFFFF
    return float((now - info.tick) & 0xFFFFFFFF) / 1000


def _say(*argv: str) -> str:
    """What a tool prints; nothing when it is not there, fails or takes too long."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TOOL_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""

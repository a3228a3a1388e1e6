"""Keeps the picture of this node's GPUs: a thread a vendor, so that none waits for
another, and one list of cards made of what they last said, with whose processes use
them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import psutil

from corral.agent.gpu_policy import GpuPolicy
from corral.agent.probe.base import Probe, ProbeResult
from corral.agent.probe.probe_process import ProbeChild, ProbeReading
from corral.agent.probe.simulated import SimulatedProbe
from corral.agent.probe.vendor import likely
from corral.agent.watch.gpu_health import GpuBreakers
from corral.core.nodes.gpu import Gpu, GpuProcess, is_called, is_news, number, offer

LOG = logging.getLogger("corral.agent")
# A reading may take this share of the time; a slow tool is asked less often.
_SHARE = 0.02
# A driver may be installed, or a card plugged in; libraries see that when met anew.
_AGAIN_S = 600.0


class GpuWatch:
    """Reads on its own threads; `latest` never blocks.

    `on_news` is rung for what the manager should know before the next sample.
    """

    def __init__(
        self,
        policy: GpuPolicy,
        node: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        root: Path = Path("/"),
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._policy = policy
        self._root = root
        self._environment = environment
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._is_whole = threading.Event()
        self._heard: dict[str, ProbeResult | None] = {}
        self._faults: dict[str, str] = {}
        self._number = 0
        self._gpus: list[Gpu] = []
        self._published_at = 0.0
        self._threads: list[threading.Thread] = []
        self.ledger = folder / "simulated"
        self._breakers = GpuBreakers(policy.quarantine, folder)
        self._node = node
        self.sample_s = 30.0
        self._on_news = on_news

    def start(self) -> None:
        loops: dict[str, Callable[[], None]] = {}
        for vendor in likely(self._root):
            loops[vendor] = partial(self._follow, vendor)
        if self._policy.simulated:
            probe = SimulatedProbe(self._policy.simulated, self._node, self.ledger)
            loops["simulated"] = partial(self._follow_inside, "simulated", probe)
        self._heard = dict.fromkeys(loops)
        if not loops:
            self._publish()
        for name, loop in loops.items():
            thread = threading.Thread(target=loop, name=f"gpu {name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=0.5)

    def wait(self, timeout_s: float) -> bool:
        """Until every vendor has answered once, or was given up."""
        return self._is_whole.wait(timeout_s)

    def latest(self) -> tuple[int, list[Gpu]] | None:
        """The number of the last reading and its cards; None before the first."""
        with self._lock:
            return (self._number, self._gpus) if self._number else None

    def faults(self) -> dict[str, str]:
        """Why a vendor's cards cannot be read, by vendor."""
        with self._lock:
            return dict(self._faults)

    def blame(self, gpu_id: str, reason: str) -> None:
        """Count an error of a card that somebody else noticed."""
        self._breakers.blame(gpu_id, reason)
        self._refresh()

    def release(self, gpu_id: str, since: datetime) -> None:
        """Lift the quarantine of a card that began at `since`."""
        if self._breakers.release(gpu_id, since):
            self._refresh()

    def _refresh(self) -> None:
        if self._is_whole.is_set():
            self._publish()

    def _follow(self, vendor: str) -> None:
        while not self._stop.is_set():
            child = self._child(vendor)
            renew_at = time.monotonic() + _AGAIN_S
            while not self._stop.is_set() and time.monotonic() < renew_at:
                reading = child.ask()
                self._note(vendor, reading)
                pause_s = self._pause_s(reading)
                if pause_s >= _AGAIN_S:
                    child.close()
                self._stop.wait(pause_s)
            child.close()

    def _child(self, vendor: str) -> ProbeChild:
        policy = self._policy
        return ProbeChild(vendor, policy.timeout_s, self._environment, self._root)

    def _follow_inside(self, vendor: str, probe: Probe) -> None:
        while not self._stop.is_set():
            self._note(vendor, ProbeReading(probe.read()))
            self._stop.wait(self._policy.look_s)

    def _pause_s(self, reading: ProbeReading) -> float:
        if reading.finding is None:
            return self.sample_s
        if not reading.finding.gpus:
            return _AGAIN_S
        slow_s = min(reading.took_s / _SHARE, self.sample_s)
        return max(self._policy.look_s, slow_s)

    def _note(self, vendor: str, reading: ProbeReading) -> None:
        with self._lock:
            self._say(vendor, reading)
            if reading.finding is not None:
                self._heard[vendor] = reading.finding
            else:
                # What is not seen for a moment is not gone, but not to be used either.
                former = self._heard[vendor] or ProbeResult()
                why = f"{vendor}: {reading.fault}"
                failed = tuple(replace(gpu, error=why) for gpu in former.gpus)
                self._heard[vendor] = ProbeResult(failed, reading.fault)
            is_whole = None not in self._heard.values()
        if is_whole:
            self._publish()

    def _say(self, vendor: str, reading: ProbeReading) -> None:
        why = reading.fault
        if reading.finding is not None and not reading.finding.gpus:
            why = reading.finding.absent
        if why == self._faults.get(vendor):
            return
        if why is None:
            LOG.info("GPUs of %s can be read again", vendor)
            self._faults.pop(vendor, None)
            return
        LOG.warning("no GPU of %s can be read: %s", vendor, why)
        self._faults[vendor] = why

    def _say_unknown(self, gpus: list[Gpu]) -> None:
        for device in self._policy.devices or ():
            if not any(is_called(gpu, device) for gpu in gpus):
                LOG.warning("CORRAL_GPU_DEVICES names %s, which is not here", device)

    def _publish(self) -> None:
        """Make a new picture, when it is due or tells something new."""
        with self._lock:
            found = [gpu for f in self._heard.values() if f for gpu in f.gpus]
            cards = self._breakers.review(number(with_owners(found)))
            gpus = offer(cards, self._policy.devices, self._policy.memory_share)
            now = time.monotonic()
            news = is_news(self._gpus, gpus)
            is_due = now - self._published_at >= self.sample_s
            if self._number and not news and not is_due:
                return
            if not self._number:
                self._say_unknown(gpus)
            self._gpus, self._published_at = gpus, now
            self._number += 1
        self._is_whole.set()
        if news:
            self._on_news()


def with_owners(gpus: Iterable[Gpu], agent_pid: int | None = None) -> list[Gpu]:
    """The same cards, with what this machine knows of the processes on them."""
    ours = os.getpid() if agent_pid is None else agent_pid
    return [
        replace(gpu, processes=tuple(_named(row, ours) for row in gpu.processes))
        for gpu in gpus
    ]


def _named(row: GpuProcess, agent_pid: int) -> GpuProcess:
    try:
        process = psutil.Process(row.pid)
        name = row.name or process.name()
        line = {row.pid, *(parent.pid for parent in process.parents())}
    except psutil.Error:
        # In a container of its own the number means nothing here.
        return row
    return replace(row, name=name, is_ours=agent_pid in line)

"""What a simulated node says of itself: sixteen workers, eight busy cards, a sample.

Figures move with every beat, as those of real cards do, so that nothing the manager
might remember from the last one makes the next one cheap.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

HOLD, IDLE = "bench.hold", "bench.idle"
CARD_MB = 81_559.0
_CLASS = "corral.worker.builtin:EchoWorker"
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class SimWorker:
    """One worker of a node, as its agent would know it."""

    id: str
    pid: int
    is_holding: bool
    incarnation: str | None = None
    state: str = "starting"
    held: list[list[Any]] = field(default_factory=list)


def registration(name: str, workers: int) -> bytes:
    """What an agent says at its start; every second worker will hold a task."""
    return _encode(
        {
            "hostname": name,
            "version": "0.1.0",
            "capabilities": {"os": "Linux", "cpu_count": 64, "python": "3.11.9"},
            "labels": {"rack": "r7", "zone": "b"},
            "workers": [
                {
                    "name": f"w{number:02}",
                    "worker_class": _CLASS,
                    "job_types": [IDLE if number % 2 else HOLD],
                }
                for number in range(workers)
            ],
        }
    )


def workers_of(desired: Mapping[str, Any]) -> list[SimWorker]:
    """The workers that a node was told to run."""
    return [
        SimWorker(told["worker_id"], 10_000 + number, HOLD in told["job_types"])
        for number, told in enumerate(desired["workers"])
    ]


def beat(
    epoch: int,
    seq: int,
    workers: Sequence[SimWorker],
    sample: Mapping[str, Any] | None,
    cards: Sequence[Mapping[str, Any]],
) -> bytes:
    return _encode(
        {
            "epoch": epoch,
            "seq": seq,
            "workers": [_entry(worker) for worker in workers],
            "sample": sample,
            "gpus": cards,
        }
    )


def _entry(worker: SimWorker) -> dict[str, Any]:
    return {
        "worker_id": worker.id,
        "incarnation": worker.incarnation,
        "state": worker.state,
        "pid": worker.pid,
        "error": None,
        "restarts": 0,
        "age_s": round(random.random(), 3),
        "memory_mb": round(random.uniform(900.0, 1100.0), 1),
        "held": worker.held,
        "facts": {"code": {"commit": "0f3c9ad1"}, "isolation": "process"},
    }


def sample() -> dict[str, Any]:
    """A reading of the machine."""
    load = random.uniform(1.0, 30.0)
    return {
        "cpu_count": 64,
        "cpu_percent": round(load * 3.0, 1),
        "memory_total_mb": 515_000.0,
        "memory_used_mb": round(random.uniform(1e5, 4e5), 1),
        "disk_total_gb": 3_500.0,
        "disk_used_gb": 1_200.5,
        "network_rx_bytes": random.getrandbits(40),
        "network_tx_bytes": random.getrandbits(40),
        "load_1m": round(load, 2),
        "load_5m": round(load, 2),
        "load_15m": round(load, 2),
    }


def cards(node: str, count: int, pids: Sequence[int]) -> list[dict[str, Any]]:
    """Every card of a node in full, with the processes on it."""
    return [_card(node, index, pids[index::count]) for index in range(count)]


def _card(node: str, index: int, pids: Sequence[int]) -> dict[str, Any]:
    used = round(random.uniform(0.4, 0.9) * CARD_MB, 1)
    return {
        "id": f"GPU-{node}-{index:04}-4c1e-9a55-7d90b2f3e6a1",
        "vendor": "nvidia",
        "name": "NVIDIA H100 80GB HBM3",
        "index": index,
        "vendor_index": index,
        "pci_address": f"0000:{16 + index:02x}:00.0",
        "memory_total_mb": CARD_MB,
        "memory_used_mb": used,
        "memory_free_mb": round(CARD_MB - used, 1),
        "utilization_percent": float(random.randrange(101)),
        "temperature_c": float(random.randrange(35, 80)),
        "power_w": round(random.uniform(90.0, 690.0), 1),
        "driver": "570.86.15",
        "compute": "9.0",
        "is_offered": True,
        "processes": [
            {"pid": pid, "name": "python3", "memory_mb": 17_408.0, "is_ours": True}
            for pid in pids
        ],
    }

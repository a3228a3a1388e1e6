"""The GPUs of this machine as we find them, beside what nvidia-smi says of them.

Then a process that is none of ours takes memory, and the time is measured until it is
seen. Needs a card, psutil, nvidia-ml-py and torch, with `src` on the path; no more of
Corral's dependencies.
"""

from __future__ import annotations

import csv
import io
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from bench import result
from corral.agent.gpu_policy import GpuPolicy
from corral.agent.probe.probe_process import ProbeChild
from corral.agent.watch.gpus import GpuWatch
from corral.core.nodes.gpu import Gpu

READINGS = 50
TAKEN_MB = 8192
WAIT_S = 60.0
# What nvidia-smi is asked for, and the field of ours that stands for it.
ASKED = {
    "uuid": "id",
    "name": "name",
    "driver_version": "driver",
    "compute_cap": "compute",
    "memory.total": "memory_total_mb",
    "memory.used": "memory_used_mb",
    "memory.free": "memory_free_mb",
    "utilization.gpu": "utilization_percent",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
}
# It leaves our family before it takes anything, as another user's program would.
TAKER = f"""
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
import torch
held = torch.empty({TAKEN_MB} << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print(os.getpid(), flush=True)
time.sleep(600)
"""


def ask_nvidia_smi() -> dict[str, dict[str, str]]:
    """The cards by UUID, as nvidia-smi lists them."""
    told = subprocess.run(
        [
            "nvidia-smi",
            "--query-gpu=" + ",".join(ASKED),
            "--format=csv,noheader,nounits",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = csv.reader(io.StringIO(told.stdout), skipinitialspace=True)
    return {row[0]: dict(zip(ASKED, row, strict=True)) for row in rows}


def show_beside(gpus: list[Gpu]) -> float:
    """Print both; the largest difference of a memory figure, in percent."""
    theirs = ask_nvidia_smi()
    largest = 0.0
    for gpu in gpus:
        if gpu.mig_parent is not None:
            print(f"  MIG instance {gpu.id}: {gpu.name}, {gpu.memory_total_mb} MB")
            continue
        told = theirs.pop(gpu.id)
        for question, field in ASKED.items():
            ours = getattr(gpu, field)
            is_memory = question.startswith("memory.")
            percent = difference(ours, told[question], 1.0 if is_memory else 0.0)
            note = "" if percent is None else f"{percent:.3f} %"
            print(f"  {question:16} {ours!s:38} {told[question]:38} {note}")
            if is_memory and percent is not None:
                largest = max(largest, percent)
    if theirs:
        raise SystemExit(f"not found by us: {', '.join(theirs)}")
    return largest


def difference(ours: object, theirs: str, slack: float) -> float | None:
    """In percent of theirs; `slack` is what rounding may have taken."""
    try:
        expected = float(theirs)
    except ValueError:
        return None
    if not isinstance(ours, float | int):
        return None
    return 100 * max(0.0, abs(ours - expected) - slack) / max(expected, 1)


def measure_readings() -> dict[str, float]:
    """What a reading costs, in the kept process and with a new one."""
    fresh = []
    for _ in range(3):
        began = time.monotonic()
        child = ProbeChild("nvidia")
        reading = child.ask()
        fresh.append(time.monotonic() - began)
        if reading.finding is None or not reading.finding.gpus:
            raise SystemExit(f"no card was found: {reading}")
        child.close()
    child = ProbeChild("nvidia")
    child.ask()
    (process,) = [
        p for p in psutil.Process().children() if "corral.agent.probe" in p.cmdline()
    ]
    before, times = process.cpu_times(), []
    for _ in range(READINGS):
        began = time.monotonic()
        child.ask()
        times.append(time.monotonic() - began)
    after = process.cpu_times()
    spent = after.user + after.system - before.user - before.system
    memory_mb = process.memory_info().rss / (1 << 20)
    child.close()
    return {
        "fresh_process_ms": 1000 * statistics.median(fresh),
        "reading_p50_ms": 1000 * statistics.median(times),
        "reading_cpu_ms": 1000 * spent / READINGS,
        "probe_rss_mb": memory_mb,
    }


def take_memory() -> int:
    """Start the stranger; its process id once it holds the memory."""
    stranger = subprocess.Popen(
        [sys.executable, "-c", TAKER], stdout=subprocess.PIPE, text=True
    )
    assert stranger.stdout is not None
    return int(stranger.stdout.readline())


def wait_for_use(watch: GpuWatch, least_mb: float) -> tuple[float, Gpu]:
    """Seconds until a card has at least this much in use, and that card."""
    began = time.monotonic()
    while time.monotonic() - began < WAIT_S:
        latest = watch.latest()
        for gpu in latest[1] if latest else ():
            if (gpu.memory_used_mb or 0.0) >= least_mb:
                return time.monotonic() - began, gpu
        time.sleep(0.05)
    raise SystemExit(f"memory taken by another process was not seen in {WAIT_S:g} s")


def main() -> None:
    # For the probes' processes.
    paths = [str(result.ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    figures = measure_readings()
    with tempfile.TemporaryDirectory() as folder:
        watch = GpuWatch(GpuPolicy(), "bench", Path(folder))
        watch.start()
        if not watch.wait(15.0):
            raise SystemExit("the first reading did not come")
        _, gpus = watch.latest() or (0, [])
        print("idle:            ours / nvidia-smi / difference")
        figures["idle_difference_percent"] = show_beside(gpus)
        before_mb = gpus[0].memory_used_mb or 0.0
        pid = take_memory()
        try:
            seen_s, card = wait_for_use(watch, before_mb + TAKEN_MB)
            print(f"{TAKEN_MB} MB taken by process {pid}, seen after {seen_s:.1f} s:")
            _, gpus = watch.latest() or (0, [])
            figures["busy_difference_percent"] = show_beside(gpus)
            for row in card.processes:
                mine = "ours" if row.is_ours else "not ours"
                print(f"  process {row.pid} {row.name!r} {row.memory_mb} MB, {mine}")
            figures["seen_after_s"] = seen_s
            lost_mb = (gpus[0].memory_total_mb or 0.0) - (gpus[0].memory_free_mb or 0.0)
            print(f"  not offered any more: {lost_mb:.0f} MB")
        finally:
            os.kill(pid, signal.SIGKILL)
            watch.stop()
    for key, value in figures.items():
        print(f"{key:26} {value:10.3f}")
    print(result.write("gpu_detect", figures, ["nvidia-ml-py", "psutil", "torch"]))


if __name__ == "__main__":
    main()

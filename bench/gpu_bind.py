"""A worker bound to this machine's card, on a whole cluster: `corral up`, then what
`gpu_info` says beside nvidia-smi, and how soon memory a stranger takes is not offered.

Needs a card, torch and Corral's dependencies, with `src` on the path. With
`--simulated` the card is made up, to try the script itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from bench import result
from bench.gpu_detect import TAKEN_MB, ask_nvidia_smi, difference, take_memory
from corral.client import Client
from corral.worker import Worker
from corral.worker.runner.gpu_memory import hold

BEAT_S = 5.0
WAIT_S = 90.0


class SeesWorker(Worker):
    """Tells which cards a worker's own code sees."""

    def run(self, payload: Any) -> Any:
        seen: dict[str, Any] = {"CORRAL_GPUS": os.environ.get("CORRAL_GPUS")}
        seen["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES")
        with contextlib.suppress(ImportError):
            import torch  # type: ignore[import-not-found, unused-ignore]

            seen["devices"] = [
                torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())
            ]
        return seen


@contextlib.contextmanager
def cluster(
    home: Path,
    *,
    is_simulated: bool,
    worker: str | None = "bench.gpu_bind:SeesWorker=sees,gpus=1",
    **settings: str,
) -> Iterator[Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    paths = [str(result.ROOT), str(result.ROOT / "src")]
    paths.append(os.environ.get("PYTHONPATH", ""))
    env = {**os.environ, "CORRAL_HOME": str(home), **settings}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if is_simulated:
        env["CORRAL_SIMULATED_GPUS"] = "24GB"
    argv = [sys.executable, "-m", "corral", "up", "--port", port]
    argv += ["--worker", worker] if worker else []
    with (home / "up.log").open("wb") as log:
        up = subprocess.Popen(argv, env=env, cwd=home, stdout=log, stderr=log)
    try:
        until("corral up is ready", lambda: '"ready": true' in _state(home))
        with Client(f"http://127.0.0.1:{port}", home=home) as client:
            yield client
    finally:
        up.terminate()
        up.wait(60)


def _state(home: Path) -> str:
    with contextlib.suppress(OSError):
        return (home / "state.json").read_text(encoding="utf-8")
    return ""


def until(what: str, check: Callable[[], Any]) -> Any:
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        if found := check():
            return found
        time.sleep(0.05)
    raise SystemExit(f"not within {WAIT_S:g} s: {what}")


def bound_card(client: Client) -> dict[str, Any] | None:
    for worker in client.workers():
        if worker.status == "online" and worker.gpu_info:
            return dict(worker.gpu_info[0])
    return None


def offered_mb(client: Client, gpu_id: str) -> float:
    cards = [card for node in client.nodes() for card in node.gpus]
    return next(float(c["memory_offered_mb"]) for c in cards if c["id"] == gpu_id)


def show_beside_smi(card: dict[str, Any]) -> float:
    """Print `gpu_info` and nvidia-smi; the largest difference of memory, percent."""
    told = ask_nvidia_smi()[card["id"]]
    largest = 0.0
    for ours, theirs in (
        ("model", "name"),
        ("memory_total", "memory.total"),
        ("memory_used", "memory.used"),
        ("temperature", "temperature.gpu"),
        ("utilization", "utilization.gpu"),
        ("driver_version", "driver_version"),
    ):
        print(f"  {ours:15} {card[ours]!s:24} {told[theirs]}")
        if ours.startswith("memory"):
            largest = max(largest, difference(card[ours], told[theirs], 1.0) or 0.0)
    return largest


@contextlib.contextmanager
def stranger(home: Path, gpu_id: str, *, is_simulated: bool) -> Iterator[None]:
    """Somebody who is none of ours takes memory of the card."""
    if is_simulated:
        (ledger,) = (path / "simulated" for path in (home / "agents").iterdir())
        with hold(ledger, gpu_id, float(TAKEN_MB)):
            yield
        return
    pid = take_memory()
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


def measure(home: Path, client: Client, *, is_simulated: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    card = until("the worker has a card", lambda: bound_card(client))
    print("gpu_info of the worker, and nvidia-smi:")
    if is_simulated:
        print(f"  {card}")
    else:
        figures["gpu_info_difference_percent"] = show_beside_smi(card)
    print(f"its code sees: {client.run('sees')}")
    (second,) = client.launch_worker("bench.gpu_bind:SeesWorker", gpus=1)
    why = until("it is refused", lambda: client.worker(second.worker_id).error)
    print(f"a second worker: {why}")
    before = offered_mb(client, card["id"])
    with stranger(home, card["id"], is_simulated=is_simulated):
        began = time.monotonic()
        least = before - TAKEN_MB
        until("it is not offered", lambda: offered_mb(client, card["id"]) <= least)
        figures["lowered_after_s"] = time.monotonic() - began
        after = offered_mb(client, card["id"])
    print(f"offered: {before:.0f} MB, with a stranger on the card {after:.0f} MB")
    figures["offered_before_mb"], figures["offered_with_stranger_mb"] = before, after
    figures["heartbeat_s"] = BEAT_S
    return figures


def main() -> None:
    is_simulated = "--simulated" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with cluster(home, is_simulated=is_simulated) as client:
            figures = measure(home, client, is_simulated=is_simulated)
    for key, value in figures.items():
        print(f"{key:30} {value:10.3f}")
    if not is_simulated:
        print(result.write("gpu_bind", figures, ["nvidia-ml-py", "psutil", "torch"]))


if __name__ == "__main__":
    main()

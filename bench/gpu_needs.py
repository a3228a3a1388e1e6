"""Tasks that take memory of this machine's card, on a whole cluster: no two at once
where one fits, nothing of what a stranger uses, and a clear end out of memory.

Needs a card, torch and Corral's dependencies, with `src` on the path. With
`--simulated` the card is made up, to try the script itself.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from bench import result
from bench.gpu_bind import cluster, stranger, until
from bench.gpu_detect import TAKEN_MB
from corral.client import Client
from corral.worker import Worker

MB = 1024 * 1024
TASKS = 6
PART = 0.4
"""Of the card that one task asks for: two fit at once, three do not."""


class TakesWorker(Worker):
    """Takes memory of the card it was given, and holds it for a while."""

    def run(self, payload: Any) -> Any:
        began, taken = time.time(), None
        with contextlib.suppress(ImportError):
            import torch  # type: ignore[import-not-found, unused-ignore]

            if torch.cuda.is_available():
                taken = torch.empty(payload["mb"] * MB, dtype=torch.uint8, device=0)
        time.sleep(payload["seconds"])
        held = 0 if taken is None else taken.numel() // MB
        return {"began": began, "ended": time.time(), "mb": held, "gpus": self.gpus()}

    def gpus(self) -> list[str]:
        return list(self.context.gpus)


def at_once(spans: list[dict[str, Any]]) -> int:
    """The most of these that ran at the same time."""
    starts: list[float] = [span["began"] for span in spans]
    return max(sum(bool(s["began"] <= t < s["ended"]) for s in spans) for t in starts)


def share_out(client: Client, total_mb: int) -> dict[str, float]:
    mb = int(total_mb * PART)
    ask = {"gpu_memory_mb": mb}
    ids = [
        client.submit("takes", {"mb": mb - 2000, "seconds": 2}, resources=ask).task_id
        for _ in range(TASKS)
    ]
    spans = [client.wait(task_id, 120).result for task_id in ids]
    found = [span for span in spans if isinstance(span, dict)]
    assert len(found) == TASKS, spans
    print(
        f"{TASKS} tasks of {mb} MB each held {found[0]['mb']} MB on {found[0]['gpus']}"
    )
    return {"tasks_at_once": at_once(found), "tasks_done": len(found)}


def wait_for_stranger(
    home: Path, client: Client, card: str, total_mb: int, *, is_simulated: bool
) -> dict[str, float]:
    """A task that needs what a stranger has waits, says so, and starts after."""
    ask = {"gpu_memory_mb": total_mb - TAKEN_MB // 2}

    def why() -> str:
        waiting = client.get_task(task_id).waiting
        return waiting.reason if waiting is not None else ""

    with stranger(home, card, is_simulated=is_simulated):
        until("it is seen", lambda: used_mb(client) >= TAKEN_MB)
        time.sleep(6)
        task_id = client.submit("takes", {"mb": 1, "seconds": 0}, resources=ask).task_id
        until("it says why", lambda: why() == "foreign_memory")
        waiting = client.get_task(task_id).waiting
        print(f"with a stranger: {waiting.text if waiting else ''}")
        began = time.monotonic()
    client.wait(task_id, 120)
    return {"started_after_stranger_s": time.monotonic() - began}


def used_mb(client: Client) -> float:
    return sum(float(c["memory_used_mb"] or 0) for n in client.nodes() for c in n.gpus)


def run_out(client: Client, total_mb: int) -> dict[str, float]:
    ask = {"gpus": 1}
    asked = {"mb": 2 * total_mb, "seconds": 0}
    ended = client.wait(client.submit("takes", asked, resources=ask).task_id, 120)
    error = ended.error
    print(f"out of memory: {ended.status}, {error.kind if error else None}")
    is_said = error is not None and error.kind == "out_of_memory"
    return {"out_of_memory_said": float(is_said)}


def measure(home: Path, client: Client, *, is_simulated: bool) -> dict[str, float]:
    card = until("a card is told", lambda: next(cards(client), None))
    total_mb = int(card["memory_offered_mb"]) - 1000
    figures: dict[str, float] = {"card_mb": float(card["memory_total_mb"])}
    figures |= share_out(client, total_mb)
    where = (home, client, card["id"], total_mb)
    figures |= wait_for_stranger(*where, is_simulated=is_simulated)
    if not is_simulated:
        figures |= run_out(client, total_mb)
    return figures


def cards(client: Client) -> Any:
    return (card for node in client.nodes() for card in node.gpus if card["is_offered"])


def main() -> None:
    is_simulated = "--simulated" in sys.argv
    worker = "bench.gpu_needs:TakesWorker=takesx4"
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with cluster(home, is_simulated=is_simulated, worker=worker) as client:
            figures = measure(home, client, is_simulated=is_simulated)
    for key, value in figures.items():
        print(f"{key:30} {value:10.3f}")
    if not is_simulated:
        print(result.write("gpu_needs", figures, ["nvidia-ml-py", "psutil", "torch"]))


if __name__ == "__main__":
    main()

"""The live side of the comparison: a real cluster with simulated cards, and its tasks.

Every run has a cluster of its own, started with one strategy.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.corral_side import CorralSide, corral_side
from bench.live_work import FLEET, JOB_TYPE, Figures, Work, figures
from bench.meter import BenchError, measure
from corral import Client
from corral.sim.machine import parse_fleet
from corral.sim.workload import Arrival
from corral.wire.tasks import TaskInfo

WORKER = "corral.worker.builtin:SleepWorker"
START_S, END_S = 120.0, 300.0


@dataclass(frozen=True, slots=True)
class Live:
    """One run.

    `late_s` is how late tasks were accepted, in the mean; `handover_s` how long a
    worker stood idle before a task that was there and needed no load, in the median;
    `foreign` the share of the machine that other processes had meanwhile.
    """

    figures: Figures
    late_s: float
    handover_s: float
    foreign: float


def live(work: Work, strategy: str) -> Live:
    """The work on a cluster of its own.

    Raises:
        BenchError: it did not start, or a task did not complete.
    """
    # Sockets of the stores live in it: their paths must be short.
    folder = Path(tempfile.mkdtemp(prefix="corral-live-"))
    settings = {
        "CORRAL_STRATEGY": strategy,
        "CORRAL_SIMULATED_GPUS": FLEET,
        "CORRAL_GPU_MEMORY_THRESHOLD": "1",
        "CORRAL_GPU_MEMORY_FRACTION": "1",
        "CORRAL_MODEL_CACHE_SIZE": "1000",
        "CORRAL_ORDER_MAX_TASKS": "1",
    }
    try:
        with corral_side(folder / "home", 1, **settings) as side:
            _launch(side.client, work)
            return _run(side, work)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _launch(client: Client, work: Work) -> None:
    """A worker for each card; all can hold every model."""
    count = len(parse_fleet(FLEET))
    models = {m.name: {"size_mb": m.size_mb, "load_s": m.load_s} for m in work.models}
    client.launch_worker(
        WORKER,
        name=JOB_TYPE,
        job_types=[JOB_TYPE],
        params={"models": models},
        count=count,
        gpus=1,
    )
    give_up_at = time.monotonic() + START_S
    while len(_workers(client)) < count:
        if time.monotonic() > give_up_at:
            raise BenchError(f"not all {count} workers came up")
        time.sleep(0.1)


def _workers(client: Client) -> list[Any]:
    serving = client.workers(status="online")
    return [worker for worker in serving if JOB_TYPE in worker.job_types]


def _loads(client: Client) -> int:
    found = client.workers()
    return round(sum(w.performance_metrics.get("model_loads", 0.0) for w in found))


def _run(side: CorralSide, work: Work) -> Live:
    client = side.client
    taught = client.submit_many([_task(a) for a in work.lessons])
    _check(client.wait_many(taught, END_S))
    before, began = _loads(client), time.time()
    ended: list[TaskInfo] = []
    late_s: list[float] = []

    def run() -> None:
        ids = _submit(client, work.arrivals, began)
        ended.extend(client.wait_many(ids, END_S))

    foreign = measure(run, side.processes).foreign
    _check(ended)
    took_s = {}
    for arrival, task in zip(work.arrivals, ended, strict=True):
        assert task.completed_at is not None
        assert task.created_at is not None
        came = began + arrival.at
        late_s.append(task.created_at.timestamp() - came)
        took_s[arrival.task.task_id] = task.completed_at.timestamp() - came
    found = figures(work, took_s, _loads(client) - before)
    return Live(found, sum(late_s) / len(late_s), _handover_s(work, ended), foreign)


def _handover_s(work: Work, ended: Sequence[TaskInfo]) -> float:
    """What the cluster itself costs between two tasks; the simulator has no such."""
    by_worker: dict[str | None, list[tuple[float, float, float, str | None]]] = {}
    for arrival, task in zip(work.arrivals, ended, strict=True):
        if task.created_at and task.started_at and task.completed_at:
            times = (task.started_at, task.completed_at, task.created_at)
            began, over, came = (each.timestamp() for each in times)
            row = (began, over, came, arrival.task.model)
            by_worker.setdefault(task.worker_id, []).append(row)
    gaps = [
        later[0] - one[1]
        for rows in by_worker.values()
        for one, later in itertools.pairwise(sorted(rows))
        if later[2] < one[1] and later[3] == one[3]
    ]
    return statistics.median(gaps) if gaps else 0.0


def _submit(client: Client, arrivals: Sequence[Arrival], began: float) -> list[str]:
    """Each when its time comes, whatever became of others; their ids."""
    ids: list[str] = []
    while len(ids) < len(arrivals):
        now_s = time.time() - began
        due = [a for a in arrivals[len(ids) : len(ids) + 1000] if a.at <= now_s]
        if due:
            ids += client.submit_many([_task(a) for a in due])
        else:
            time.sleep(max(0.0, arrivals[len(ids)].at - now_s))
    return ids


def _task(arrival: Arrival) -> dict[str, Any]:
    return {
        "task_type": JOB_TYPE,
        "parameters": {"seconds": arrival.run_s},
        "model_name": arrival.task.model,
        "priority": arrival.task.priority,
    }


def _check(ended: Sequence[TaskInfo]) -> None:
    bad = [task for task in ended if not task.is_completed or task.attempt > 1]
    if bad:
        raise BenchError(f"{len(bad)} tasks did not complete at once: {bad[0]}")

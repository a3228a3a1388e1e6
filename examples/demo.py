"""`make demo`: a cluster on this machine at work, and what happens when a part dies.

One manager and two agents run a few hundred tasks of four kinds; in the middle one
worker is killed. It uses what any user has: the `corral` command and `corral.Client`.
Nothing it starts outlives it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from corral import Client
from corral.client import TaskInfo, WorkerInfo
from corral.errors import CorralError

ROOT = Path(__file__).resolve().parents[1]
ECHO = "corral.worker.builtin:EchoWorker=echo"
SLEEP = "corral.worker.builtin:SleepWorker=sleep"
PRIMES, FLAKY = "examples.workers:PrimesWorker", "examples.workers:FlakyWorker"
SECOND = "second"
START_S, RUN_S, STOP_S = 90.0, 90.0, 20.0
KILL_AT = 0.3
PRIMES_UPTO = {1_000: 168, 10_000: 1_229, 100_000: 9_592}
INTERRUPTED = 130


class Broken(Exception):
    """Something is not as promised; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Job:
    """One task of the demo and how to tell that its result is right."""

    kind: str
    parameters: dict[str, Any]
    expected: dict[str, Any]
    retries: int = 0

    def spec(self) -> dict[str, Any]:
        parameters = {"task_type": self.kind, "parameters": self.parameters}
        return {**parameters, "retries": self.retries}


@dataclass(frozen=True, slots=True)
class Killed:
    """The worker that was killed in the middle, and when."""

    worker: WorkerInfo
    at: datetime


def make_jobs() -> list[Job]:
    """A few hundred short tasks, the same on every run, well mixed."""
    luck = random.Random(7)
    naps = [round(luck.uniform(0.02, 0.2), 3) for _ in range(100)]
    upto = [luck.choice(list(PRIMES_UPTO)) for _ in range(80)]
    jobs = [Job("echo", {"message": n}, {"echoed": n}) for n in range(160)]
    jobs += [Job("sleep", {"seconds": s}, {"slept": s}) for s in naps]
    jobs += [
        Job("primes", {"upto": n}, {"upto": n, "primes": PRIMES_UPTO[n]}) for n in upto
    ]
    jobs += [Job("flaky", {}, {}, retries=2) for _ in range(40)]
    luck.shuffle(jobs)
    return jobs


@contextmanager
def process(folder: Path, name: str, *arguments: str) -> Iterator[Callable[[], None]]:
    """A `corral` command for the length of a block; yields a check that it lives."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CORRAL_")}
    path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        started = subprocess.Popen(
            [sys.executable, "-m", "corral", *arguments],
            env={**kept, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            # Ctrl-C in the terminal is for the demo, which then ends everything.
            start_new_session=True,
        )

    def check() -> None:
        if started.poll() is not None:
            lines = log.read_text(errors="replace").split("\n")
            said = [line for line in lines if line.strip()]
            raise Broken(f"corral {name} ended: {said[-1] if said else 'no word'}")

    try:
        yield check
    finally:
        stop(started, name)


def stop(started: subprocess.Popen[bytes], name: str) -> None:
    """End a process politely, then look that nothing of it is left."""
    family: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(started.pid).children(recursive=True)
    started.terminate()
    try:
        started.wait(STOP_S)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()
    _, left = psutil.wait_procs(family, timeout=5.0)
    for survivor in left:
        with suppress(psutil.NoSuchProcess):
            survivor.kill()
    if left and sys.exc_info()[0] is None:
        raise Broken(f"corral {name} left {len(left)} processes behind")


def wait_for(
    what: str, is_done: Callable[[], object], check: Callable[[], None]
) -> None:
    give_up_at = time.monotonic() + START_S
    while not is_done():
        check()
        if time.monotonic() > give_up_at:
            raise Broken(f"not within {START_S:g} s: {what}")
        time.sleep(0.1)


def start_cluster(
    stack: ExitStack, folder: Path, say: Callable[[str], object]
) -> Client:
    """One manager with an agent beside it, a second agent, and our own workers."""
    port = free_port()
    url, home = f"http://127.0.0.1:{port}", folder / "corral"
    options = ("--home", str(home), "--port", str(port))
    workers = ("--worker", ECHO, "--worker", f"{SLEEP}x2")
    begun = time.monotonic()
    up = stack.enter_context(process(folder, "up", "up", *options, *workers))
    wait_for("the manager is ready", lambda: is_up(home), up)
    say(f"manager and first agent at {url} after {time.monotonic() - begun:.1f} s")
    client = stack.enter_context(Client(url, home=home))
    token = ("--token", client.join_token(uses=1).token, "--name", SECOND)
    place = ("--home", str(folder / SECOND), "--worker", f"{SLEEP}x2")
    join = stack.enter_context(process(folder, "join", "join", url, *token, *place))
    wait_for("the second agent joins", lambda: len(client.nodes()) == 2, join)
    for node in client.nodes():
        client.launch_worker(PRIMES, job_types=["primes"], node_id=node.node_id)
    client.launch_worker(FLAKY, job_types=["flaky"])
    wait_for("all workers are online", lambda: count_online(client) == 6, join)
    say(f"second agent and our own workers after {time.monotonic() - begun:.1f} s")
    return client


def is_up(home: Path) -> bool:
    """Does `corral up` say that it is ready?"""
    with suppress(OSError, ValueError):
        return bool(json.loads((home / "state.json").read_text("utf-8"))["ready"])
    return False


def count_online(client: Client) -> int:
    return sum(worker.status in ("online", "busy") for worker in client.workers())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Display:
    """Bars that move on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console, totals: Counter[str]) -> None:
        self._console = console
        self.say = console.print
        self._total = totals.total()
        self._done = self._told = 0
        columns = (TextColumn("{task.description:>8}"), BarColumn(40))
        self._bars = Progress(*columns, MofNCompleteColumn(), console=console)
        self._ids = {k: self._bars.add_task(k, total=n) for k, n in totals.items()}

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with self._bars:
            yield

    def advance(self, ended: list[TaskInfo]) -> None:
        for task in ended:
            self._bars.advance(self._ids[task.task_type])
        self._done += len(ended)
        is_due = self._done - self._told >= self._total // 5 or not self._left
        if not self._console.is_terminal and is_due and self._done > self._told:
            self._told = self._done
            self._console.print(f"{self._done} of {self._total} tasks done")

    @property
    def _left(self) -> int:
        return self._total - self._done


def run_all(
    client: Client, ids: list[str], show: Display
) -> tuple[dict[str, TaskInfo], Killed]:
    """Wait for every task; kill a worker when a part of them is done."""
    ended: dict[str, TaskInfo] = {}
    pending, killed = ids, None
    give_up_at = time.monotonic() + RUN_S
    while pending:
        found = client.collect(pending, wait_s=0.1)
        ended.update((task.task_id, task) for task in found.tasks)
        show.advance(found.tasks)
        if found.unknown or time.monotonic() > give_up_at:
            lost = len(found.unknown) or len(found.pending)
            raise Broken(f"{lost} of {len(ids)} tasks did not end")
        pending = found.pending
        if killed is None and len(ended) >= KILL_AT * len(ids):
            killed = kill_worker(client, show.say)
    if killed is None:
        raise Broken("there was no worker to kill")
    return ended, killed


def kill_worker(client: Client, say: Callable[[str], object]) -> Killed | None:
    """kill -9 of a worker that has tasks in hand; None when none has right now."""
    nodes = {node.node_id for node in client.nodes() if node.hostname == SECOND}
    for worker in client.workers():
        is_at_it = "sleep" in worker.job_types and worker.current_tasks
        if worker.node_id in nodes and is_at_it and worker.pid:
            os.kill(worker.pid, signal.SIGKILL)
            say(f"kill -9 of worker {worker.worker_id} on {SECOND!r}, pid {worker.pid}")
            return Killed(worker, datetime.now(UTC))
    return None


def is_back(client: Client, killed: WorkerInfo) -> bool:
    now = client.worker(killed.worker_id)
    return now.status in ("online", "busy") and now.pid != killed.pid


def check_results(jobs: dict[str, Job], ended: dict[str, TaskInfo]) -> None:
    for task_id, job in jobs.items():
        task = ended[task_id]
        if not task.is_completed:
            why = task.error.message if task.error else "no reason given"
            raise Broken(f"{job.kind} task {task_id} {task.status}: {why}")
        wrong = {k: v for k, v in job.expected.items() if task.result.get(k) != v}
        if wrong:
            raise Broken(f"{job.kind} task {task_id} returned {task.result}")


def count_attempts(
    client: Client, ended: dict[str, TaskInfo], killed: Killed
) -> tuple[int, int]:
    """Failed tries that were repeated; tasks that lost their worker and ran again."""
    retries = again = 0
    for task in ended.values():
        if task.attempt == 1:
            continue
        for attempt in client.get_task(task).attempts:
            retries += attempt.outcome == "failed"
            ended_at = attempt.finished_at
            again += (
                attempt.outcome != "failed"
                and attempt.worker_id == killed.worker.worker_id
                and ended_at is not None
                and ended_at >= killed.at
            )
    return retries, again


def summary(
    client: Client, ended: dict[str, TaskInfo], killed: Killed, took_s: float
) -> Table:
    kinds = Counter(task.task_type for task in ended.values())
    retries, again = count_attempts(client, ended, killed)
    if retries < kinds["flaky"]:
        raise Broken(f"only {retries} of {kinds['flaky']} failed tries were repeated")
    waited = [
        (task.completed_at - task.created_at).total_seconds()
        for task in ended.values()
        if task.completed_at and task.created_at
    ]
    cuts = statistics.quantiles(waited, n=100, method="inclusive")
    rows = {
        "tasks": f"{len(ended)} ({', '.join(f'{n} {k}' for k, n in kinds.items())})",
        "completed": f"{sum(task.is_completed for task in ended.values())}",
        "failed tries, repeated": f"{retries}",
        "killed": f"worker {killed.worker.worker_id} on node {SECOND!r}, with"
        f" {killed.worker.current_tasks} tasks in hand (kill -9)",
        "ran again because of it": f"{again}",
        "share of the second node": f"{share_of_second(client, ended)} tasks",
        "submit to result, p50 / p99": f"{cuts[49]:.2f} s / {cuts[98]:.2f} s",
        "throughput": f"{len(ended) / took_s:.0f} tasks/s",
    }
    table = Table(show_header=False, title="what happened")
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def share_of_second(client: Client, ended: dict[str, TaskInfo]) -> int:
    nodes = {node.node_id for node in client.nodes() if node.hostname == SECOND}
    there = {w.worker_id for w in client.workers() if w.node_id in nodes}
    share = sum(task.worker_id in there for task in ended.values())
    if not share:
        raise Broken("the second node did no work")
    return share


def show_all(console: Console, folder: Path) -> None:
    with ExitStack() as stack:
        client = start_cluster(stack, folder, console.print)
        jobs = make_jobs()
        show = Display(console, Counter(job.kind for job in jobs))
        begun = time.monotonic()
        with show.shown():
            ids = client.submit_many([job.spec() for job in jobs])
            ended, killed = run_all(client, ids, show)
        took_s = time.monotonic() - begun
        check_results(dict(zip(ids, jobs, strict=True)), ended)
        console.print(summary(client, ended, killed, took_s))
        wait_for(
            "the killed worker is back",
            lambda: is_back(client, killed.worker),
            lambda: None,
        )
        console.print("the killed worker serves again; stopping")


def on_signal(number: int, frame: FrameType | None) -> None:
    # One is enough: a second one must not cut the cleaning up short.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    console = Console(highlight=False)
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), on_signal)
    try:
        with tempfile.TemporaryDirectory(prefix="corral-demo-") as folder:
            show_all(console, Path(folder))
    except KeyboardInterrupt:
        console.print("stopped by a signal; everything was ended")
        return INTERRUPTED
    except (Broken, CorralError, OSError, TimeoutError) as error:
        console.print(f"the demo failed: {error}")
        return 1
    console.print("nothing was lost, and nothing is left running")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

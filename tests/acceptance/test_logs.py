"""Live logs of scripts on a real cluster: at once, whole, bounded, never twice."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from corral.client import LogLine
from corral.core.tasks.script import JOB_TYPE
from tests.acceptance.cluster import CORRAL, Cluster, typical_s, until

SCRIPTS = f"corral.worker.script.worker:RunScriptWorker={JOB_TYPE}"
COUNT = 2_000_000
LIMIT_BYTES = 8 << 20
TAIL_BYTES = 256 << 10
NUMBERS = "import sys; sys.stdout.writelines(f'line {n}\\n' for n in range(%d))"
SLOWLY = """
import sys, time
for n in range(%d):
    print(f"line {n}", flush=True)
    if n %% 20 == 0:
        time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster.start(tmp_path_factory.mktemp("logs"), [SCRIPTS])
    try:
        started.serving(JOB_TYPE)
        yield started
    finally:
        started.stop()


def submit(cluster: Cluster, code: str, **options: Any) -> str:
    folder = cluster.home / "empty"
    folder.mkdir(exist_ok=True)
    where = {"archive": {"digest": cluster.client.upload(folder)}}
    told = {"command": ["python", "-c", code], "environment": where}
    return cluster.client.submit(JOB_TYPE, told, **options).task_id


def texts(lines: Iterator[LogLine]) -> list[str]:
    return [line.text for line in lines]


def numbered(first: int, last: int) -> list[str]:
    return [f"line {n}" for n in range(first, last)]


class Memory:
    """The most that the agent, the supervisor and the runners had at a time."""

    def __init__(self, cluster: Cluster) -> None:
        agent = psutil.Process(cluster.pid("agent"))
        [supervisor] = cluster.worker_pids(JOB_TYPE)
        family = {p.pid: p for p in (agent, psutil.Process(supervisor))}
        for pid in cluster.runner_pids(supervisor):
            family[pid] = psutil.Process(pid)
        assert len(family) == 3
        self._family = family.values()
        self.before = self.most = self._now()
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    def __enter__(self) -> Memory:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watcher.join()

    @property
    def grown_mb(self) -> float:
        return (self.most - self.before) / 1e6

    def _now(self) -> int:
        return sum(p.memory_info().rss for p in self._family)

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self.most = max(self.most, self._now())


def test_two_million_lines_cost_little_memory_and_keep_their_exact_end(
    cluster: Cluster,
) -> None:
    cluster.client.result(submit(cluster, "print()"), 60)
    with Memory(cluster) as memory:
        task_id = submit(cluster, NUMBERS % COUNT)
        followed = texts(cluster.client.logs(task_id, follow=True))
        assert cluster.client.wait(task_id, 60).is_completed
    assert memory.grown_mb < 50
    assert followed == texts(cluster.client.logs(task_id))
    [mark] = [i for i, line in enumerate(followed) if line.startswith("[")]
    first, last = followed[:mark], followed[mark + 1 :]
    assert first == numbered(0, len(first))
    assert last == numbered(COUNT - len(last), COUNT)
    assert 0 <= LIMIT_BYTES - sum(len(line) + 1 for line in first) < 20
    assert 0 <= TAIL_BYTES - sum(len(line) + 1 for line in last) < 20
    lost = COUNT - len(first) - len(last)
    size = sum(len(line) + 1 for line in numbered(len(first), COUNT - len(last)))
    assert followed[mark] == f"[{lost} lines, {size} bytes left out]"


def test_a_flood_of_100_mb_neither_blocks_nor_fills_memory(cluster: Cluster) -> None:
    flood = "import os\nfor _ in range(400): os.write(1, b'x' * 100 + b'\\n' * 262044)"
    line = "import os\nfor _ in range(400): os.write(2, b'y' * 262144)"
    task_id = ""
    for code in (flood, line):
        with Memory(cluster) as memory:
            task_id = submit(cluster, code)
            assert cluster.client.wait(task_id, 90).is_completed
        assert memory.grown_mb < 50
    [only] = texts(cluster.client.logs(task_id))
    assert re.fullmatch(r"y{16384} \[104841216 bytes of this line left out\]", only)


def test_output_is_seen_at_once_and_the_command_ends_with_the_script(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = "import time\nfor _ in range(4): print(time.time()); time.sleep(0.4)\n"
    (tmp_path / "script.py").write_text(f"{script}print(time.time())\n")
    env = {**cluster.environment, "CORRAL_MANAGER_URL": cluster.url}
    words = ["run", "--dir", str(tmp_path), "--", "python", "script.py"]

    def delays() -> tuple[float, float]:
        """Until the slowest line was seen, and from the last one to the end."""
        command = [*CORRAL, *words]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as run:
            assert run.stdout is not None
            seen = [(time.time(), float(line)) for line in run.stdout]
            ended_at = time.time()
        assert len(seen) == 5
        return max(at - printed for at, printed in seen), ended_at - seen[-1][1]

    slowest, rests = zip(*(delays() for _ in range(3)), strict=True)
    assert statistics.median(slowest) < 0.8
    assert statistics.median(rests) < 1.5


def test_the_command_ends_at_once_when_nothing_is_printed(cluster: Cluster) -> None:
    def delay() -> float:
        task_id = submit(cluster, "import time; time.sleep(1)")
        assert texts(cluster.client.logs(task_id, follow=True)) == []
        ended_at = time.time()
        done = cluster.client.get_task(task_id)
        assert done.is_terminal
        assert done.completed_at is not None
        return ended_at - done.completed_at.timestamp()

    assert typical_s(delay) < 0.5


class Stream:
    """Reads events, cutting the connection again and again."""

    def __init__(self, cluster: Cluster, path: str) -> None:
        self._cluster = cluster
        self._path = path
        self._key = (cluster.home / "admin.key").read_text().strip()
        self.last_id = ""
        self.cuts = 0
        self.lines: list[str] = []
        self.end: Any = None

    def read(self, sizes: Iterator[int]) -> None:
        for size in sizes:
            if self._read_some(size):
                return
            self.cuts += 1

    def _read_some(self, size: int) -> bool:
        headers = {"Authorization": f"Bearer {self._key}"}
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        link = http.client.HTTPConnection("127.0.0.1", self._cluster.port, timeout=30)
        try:
            link.request("GET", self._path, headers=headers)
            answer = link.getresponse()
            assert answer.status == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            got = b""
            while len(got) < size and (some := answer.read1(size - len(got))):
                got += some
        finally:
            link.close()
        # What comes after the last empty line is an event that was cut.
        ends = [self._take(event) for event in got.split(b"\n\n")[:-1]]
        return any(ends)

    def _take(self, event: bytes) -> bool:
        fields = dict(row.split(": ", 1) for row in event.decode().splitlines())
        if fields.get("event") == "end":
            self.end = json.loads(fields["data"])
            return True
        if "id" in fields:
            self.last_id = fields["id"]
            self.lines.append(json.loads(fields["data"])["text"])
        return False


def test_events_resume_after_every_cut_without_loss_or_repetition(
    cluster: Cluster,
) -> None:
    task_id = submit(cluster, SLOWLY % 2000)
    stream = Stream(cluster, f"/tasks/{task_id}/logs/stream")
    stream.read(itertools.cycle([700, 1, 95, 5000, 333]))
    assert stream.cuts > 50
    assert stream.lines == numbered(0, 2000)
    assert stream.end == {"status": "completed"}


def test_a_follower_lives_through_the_managers_death(cluster: Cluster) -> None:
    task_id = submit(cluster, SLOWLY % 4000)
    heard: list[str] = []
    for line in cluster.client.logs(task_id, follow=True):
        heard.append(line.text)
        if len(heard) == 500:
            dead = cluster.kill("manager")
    assert len(heard) > 500
    until("another manager", lambda: cluster.pid("manager") not in (0, dead))
    assert heard == numbered(0, 4000)
    assert cluster.client.wait(task_id, 60).is_completed


@pytest.mark.spec("B19")
def test_attempts_are_told_apart(cluster: Cluster) -> None:
    code = "import os; print('try', os.environ['CORRAL_ATTEMPT']); print('bye'); 1/0"
    task_id = submit(cluster, code, retries=1)
    lines = list(cluster.client.logs(task_id, follow=True))
    printed = [(x.attempt, x.text) for x in lines if x.stream == "stdout"]
    assert printed == [(1, "try 1"), (1, "bye"), (2, "try 2"), (2, "bye")]
    second = cluster.corral("logs", task_id, "--attempt", "2")
    assert second.out.split("\n")[:2] == ["try 2", "bye"]
    assert "ZeroDivisionError" in second.err
    last = cluster.corral("logs", task_id, "--attempt", "1", "--tail", "1")
    # Two streams, read side by side: either may be the last to be heard.
    ends = {("", "ZeroDivisionError: division by zero"), ("bye", "")}
    assert (last.out.strip(), last.err.strip()) in ends


@pytest.mark.spec("C44")
def test_a_script_knows_the_request_it_came_with(cluster: Cluster) -> None:
    task_id = submit(cluster, "import os; print(os.environ['CORRAL_REQUEST_ID'])")
    lines = texts(cluster.client.logs(task_id, follow=True))
    assert lines == [cluster.client.get_task(task_id).request_id]


def test_a_script_says_how_far_it_is(cluster: Cluster) -> None:
    code = "print('a line\\n::progress 1/4 reading'); import time; time.sleep(60)"
    task_id = submit(cluster, code)
    lines: list[str] = []
    is_seen = False
    for word in cluster.client.follow(task_id):
        if isinstance(word, LogLine):
            lines.append(word.text)
        elif word.fraction == 0.25:
            assert word.message == "reading"
            task = cluster.client.get_task(task_id)
            assert task.progress is not None
            assert task.progress.fraction == 0.25
            is_seen = True
        # Lines are gathered for a moment; how far it is may be told before them.
        if is_seen and lines:
            cluster.client.cancel(task_id)
            is_seen = False
    assert lines == ["a line"]

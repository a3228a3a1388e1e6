"""Tests in several processes, forked when all of them are found: `--forks 5`.

To find thousands of tests and import what they need takes seconds of a processor. Here
that happens once, and not once in each process as with pytest-xdist. A file stays with
one process; who has nothing to do takes the next file. Only for tests that leave no
thread behind when they are imported.
"""

from __future__ import annotations

import gc
import os
import signal
import struct
import traceback
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

# One process has all of these: they share libraries that take seconds to import, a
# database, or the syntax trees of all our files.
TOGETHER = {
    "tests/unit/worker/inference/": "PyTorch",
    "tests/unit/worker/runner/test_profile.py": "PyTorch",
    "tests/contract/test_store": "PostgreSQL",
    "tests/test_": "trees",
}
# Begun with, since nothing should be left to wait for in the end.
LONGEST = (
    *("tests/unit/worker/inference/", "tests/unit/worker/runner/test_profile.py"),
    *("tests/unit/cli/top/", "tests/contract/test_store", "tests/test_"),
    *("tests/unit/agent/", "tests/unit/worker/", "tests/contract/test_engine.py"),
)
Files = list[list[pytest.Item]]
NUMBER = struct.Struct("H")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help=__doc__)


def pytest_configure(config: pytest.Config) -> None:
    # What measures coverage or asks at a terminal knows of one process only.
    alone = config.getoption("usepdb") or config.getoption("cov_source", None)
    if config.getoption("forks") and not alone:
        config.pluginmanager.register(Forks(), "corral-forks")


class Forks:
    """Takes the place of pytest's own loop."""

    def __init__(self) -> None:
        self._left: dict[str, pytest.Item] = {}
        """Tests nobody has told the end of."""
        self._children: dict[Connection, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed:
            return None
        files = together(session.items)
        self._left = {item.nodeid: item for item in session.items}
        queue = filled(len(files))
        temporary(session).getbasetemp()
        # What was imported stays: no process looks through it for garbage, which would
        # also copy every page of it.
        gc.collect()
        gc.freeze()
        for _ in range(min(session.config.getoption("forks"), len(files))):
            self._fork(session, files, queue)
        try:
            while self._children:
                for each in wait(list(self._children)):
                    assert isinstance(each, Connection)
                    self._hear(session, each)
                if session.shouldfail or session.shouldstop:
                    list(taken(queue))
        finally:
            os.close(queue)
            self._interrupt()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        self._tell_lost(session)
        return True

    def _fork(self, session: pytest.Session, files: Files, queue: int) -> None:
        theirs, ours = Pipe(duplex=False)
        if pid := os.fork():
            ours.close()
            self._children[theirs] = pid
            return
        try:
            Child(session, ours).work(files, queue)
        except BaseException:  # noqa: BLE001 - it must never go on as a second parent
            with suppress(OSError):
                ours.send(("trouble", traceback.format_exc()))
        finally:
            os._exit(1)

    def _hear(self, session: pytest.Session, child: Connection) -> None:
        hook = session.config.hook
        try:
            what, told = child.recv()
        except EOFError:
            child.close()
            os.waitpid(self._children.pop(child), 0)
            return
        if what == "report":
            report = hook.pytest_report_from_serializable(
                config=session.config, data=told
            )
            hook.pytest_runtest_logreport(report=report)
        elif what == "start":
            hook.pytest_runtest_logstart(nodeid=told[0], location=told[1])
        elif what == "finish":
            del self._left[told[0]]
            hook.pytest_runtest_logfinish(nodeid=told[0], location=told[1])
        else:
            raise RuntimeError(told)

    def _tell_lost(self, session: pytest.Session) -> None:
        """A process that died took along what it ran, and the rest of the file."""
        for item in self._left.values():
            report = pytest.TestReport(
                nodeid=item.nodeid,
                location=item.location,
                keywords={},
                outcome="failed",
                longrepr=f"{item.nodeid}: the process that had it died",
                when="call",
            )
            session.config.hook.pytest_runtest_logreport(report=report)

    def _interrupt(self) -> None:
        for child, pid in self._children.items():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
            child.close()
            os.waitpid(pid, 0)
        self._children.clear()


class Child:
    """One of the processes: it runs files and tells its parent."""

    def __init__(self, session: pytest.Session, parent: Connection) -> None:
        self._session, self._parent = session, parent
        plugins = session.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(self)
        # The file that output is kept in would be that of all processes.
        capture: Any = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()

    def work(self, files: Files, queue: int) -> NoReturn:
        run = self._session.config.hook.pytest_runtest_protocol
        items = self._items(files, queue)
        item = next(items, None)
        while item is not None:
            # What a fixture has is kept for the next test, so it has to be known.
            following = next(items, None)
            if following is None:
                # What was left unclosed is an error of a test that is still to come.
                gc.collect()
            run(item=item, nextitem=following)
            item = following
        os._exit(0)

    def _items(self, files: Files, queue: int) -> Iterator[pytest.Item]:
        made = temporary(self._session)
        base = made.getbasetemp()
        for number in taken(queue):
            # Two processes should not look for a free name in the same folder; and to
            # look for it takes as long as the folder is full.
            made._basetemp = base / str(number)
            made._basetemp.mkdir(mode=0o700)
            yield from files[number]

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._parent.send(("start", (nodeid, location)))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._parent.send(("finish", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = self._session.config.hook.pytest_report_to_serializable(
            config=self._session.config, report=report
        )
        self._parent.send(("report", told))


def temporary(session: pytest.Session) -> Any:
    """What makes `tmp_path` of all tests."""
    return session.config._tmp_path_factory  # type: ignore[attr-defined]


def filled(count: int) -> int:
    """A pipe with these numbers: whoever reads one has it alone."""
    outlet, inlet = os.pipe()
    os.write(inlet, b"".join(map(NUMBER.pack, range(count))))
    os.close(inlet)
    return outlet


def taken(queue: int) -> Iterator[int]:
    while raw := os.read(queue, NUMBER.size):
        yield NUMBER.unpack(raw)[0]


def together(items: list[pytest.Item]) -> Files:
    """Tests by what they share or their file, in the order they are begun."""
    ordered = sorted(items, key=lambda item: (_turn(item.nodeid), _shared(item.nodeid)))
    return [list(each) for _, each in groupby(ordered, lambda i: _shared(i.nodeid))]


def _turn(nodeid: str) -> int:
    turns = (n for n, start in enumerate(LONGEST) if nodeid.startswith(start))
    return next(turns, len(LONGEST))


def _shared(nodeid: str) -> str:
    shared = (TOGETHER[each] for each in TOGETHER if nodeid.startswith(each))
    return next(shared, nodeid.partition("::")[0])

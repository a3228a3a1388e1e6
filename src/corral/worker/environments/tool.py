"""Runs git and uv: an environment made for them alone, a time limit, last words.

What they start ends with them, and they end with us.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from corral.errors import EnvironmentFailed, WorkerError
from corral.process import group, spawn
from corral.process.keep_alive import KILL, bare_environment, tethered
from corral.worker import isolation
from corral.worker.environments.folder import walk
from corral.worker.isolation import Level, SandboxJob

TAIL_BYTES = 8192
REASON_LENGTH = 300
_LOOK_S = 0.5
# How the network is reached from here: certificates and proxies.
_NETWORK = re.compile(
    r"SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CA(INFO|PATH)"
    r"|(HTTPS?|ALL|NO)_PROXY",
    re.IGNORECASE,
)
# By this variable whoever goes on with a build finds what is left of the last try.
_WORK = "CORRAL_BUILD"
_DECORATION = re.compile(r"^[\s│×╰├─▶]+")
_FULL = re.compile(r"No space left on device|Out of diskspace")
_FAULT = re.compile(r"(fatal|error|ERROR): *|(?=\s*×)")


def environment() -> dict[str, str]:
    """What every tool gets: where programs are, and the way to the network."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if _NETWORK.fullmatch(name) or name == spawn.MARK
    }
    return {**bare_environment(), **ours}


def has_proxy() -> bool:
    """Does the way to https servers lead through one?"""
    names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    return any(os.environ.get(name) for name in names)


@dataclass(frozen=True, slots=True)
class FolderLimit:
    """A folder that a tool fills, and how large it may become; `setting` says so."""

    folder: Path
    most_bytes: int
    setting: str

    def is_over(self) -> bool:
        total = 0
        # By length: blocks are given to a file later, if it is written just now.
        for entry in _walk(self.folder):
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
        return total > self.most_bytes

    def __str__(self) -> str:
        return f"more than {self.most_bytes} bytes ({self.setting})"


def _walk(root: Path) -> Iterator[os.DirEntry[str]]:
    # Others are at work in it: folders come and go.
    with contextlib.suppress(OSError):
        yield from walk(root)


def run(
    argv: Sequence[str],
    *,
    variables: Mapping[str, str],
    folder: Path,
    timeout_s: float,
    what: str,
    mark: str = "",
    hidden: Iterable[str] = (),
    limit: FolderLimit | None = None,
) -> str:
    """Run a tool to its end; what it wrote to its standard output.

    Args:
        argv: the program and its arguments.
        variables: its whole environment.
        folder: where it runs.
        timeout_s: it is killed after that.
        what: names the step in errors.
        mark: what it works on; `end_strays` finds it by that when we are dead.
        hidden: texts that are never repeated.
        limit: it is killed when that folder becomes larger.

    Raises:
        EnvironmentFailed: it cannot be started, failed or took too long; `.output`
            has the end of what it wrote.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        watch = _Watch(timeout_s, limit)
        code = _run(argv, {**variables, _WORK: mark}, folder, watch, (out, err))
        said = _hide(_tail(err) + (_tail(out) if code else ""), hidden)
        if watch.reason:
            # Whoever could try it in another way must not.
            raise EnvironmentFailed(
                f"{what} {watch.reason}",
                output=said,
                timed_out=True,
                too_large=watch.is_large,
            )
        _judge(code, said, what, timeout_s)
        out.seek(0)
        return out.read().decode("utf-8", "replace")


def run_confined(
    job: SandboxJob, level: Level, *, timeout_s: float, what: str, mark: str
) -> None:
    """The same for a job, which sees what it says and nothing else.

    Raises:
        EnvironmentFailed: as `run` does.
    """
    said = {"stderr": bytearray(), "stdout": bytearray()}

    def hear(stream: str, data: bytes) -> None:
        said[stream] += data
        del said[stream][:-TAIL_BYTES]

    marked = {**job.environment, _WORK: mark}
    try:
        running = isolation.start(replace(job, environment=marked), hear, level)
    except WorkerError as error:
        raise EnvironmentFailed(f"{what} cannot be run: {error.message}") from error
    try:
        code = running.wait(timeout_s)
    finally:
        running.stop(0.0)
    if code is not None and code > 128:
        code = 128 - code
    text = b"".join(said.values()).decode("utf-8", "replace")
    _judge(code, text, what, timeout_s)


def _judge(code: int | None, said: str, what: str, timeout_s: float) -> None:
    if code is None:
        raise EnvironmentFailed(
            f"{what} took longer than {timeout_s:g} s", output=said, timed_out=True
        )
    if code < 0:
        raise EnvironmentFailed(f"{what} {group.say_exit(code)}", output=said)
    if code:
        why = reason(said) or group.say_exit(code)
        if _FULL.search(said):
            why += " (the disk is full)"
        raise EnvironmentFailed(f"{what} failed: {why}", output=said)


class _Watch:
    """Ends a tool that takes too long, or too much."""

    def __init__(self, timeout_s: float, limit: FolderLimit | None) -> None:
        self._timeout_s = timeout_s
        self._limit = limit
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.reason = ""
        self.is_large = False

    def start(self, pid: int) -> None:
        self._thread = threading.Thread(target=self._look, args=(pid,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        # What a quick one wrote in its last moments counts as well.
        if not self.reason:
            self._measure()

    def _measure(self) -> bool:
        if self._limit is not None and self._limit.is_over():
            self.reason, self.is_large = f"brings {self._limit}", True
        return self.is_large

    def _look(self, pid: int) -> None:
        end = time.monotonic() + self._timeout_s
        while (left := end - time.monotonic()) > 0:
            step = left if self._limit is None else min(left, _LOOK_S)
            if self._over.wait(step):
                return
            if self._measure():
                break
        else:
            self.reason = f"took longer than {self._timeout_s:g} s"
        group.kill_group(pid)


def _run(
    argv: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    watch: _Watch,
    outputs: tuple[IO[bytes], IO[bytes]],
) -> int:
    """The exit code."""
    options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        options = group.group_options()
    child = subprocess.Popen(
        tethered(tuple(argv), KILL),
        env=dict(variables),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=outputs[0],
        stderr=outputs[1],
        **options,
    )
    watch.start(child.pid)
    try:
        group.await_exit(child)
    finally:
        # Before the pid is given back: it names the group.
        watch.stop()
        group.kill_group(child.pid)
        code = child.wait()
    return code


def end_strays(mark: str) -> None:
    """End what a killed process had started to work on this, wherever it went."""
    spawn.kill_marked([mark], _WORK)


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    return file.read().decode("utf-8", "replace")


def _hide(text: str, hidden: Iterable[str]) -> str:
    for secret in hidden:
        text = text.replace(secret, "***")
    return text


def reason(said: str) -> str:
    """The one line that says why, of all that a tool wrote."""
    lines = [line for line in said.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if _FAULT.match(line)), None)
    if first is None:
        return _plain(lines[-1]) if lines else ""
    why = _plain(_FAULT.sub("", lines[first], count=1))
    # uv says what it could not do first, and why below it.
    following = lines[first + 1] if first + 1 < len(lines) else ""
    if re.match(r"\s*(cause|Caused by|[╰├]─▶)", following):
        why = f"{why.rstrip(':')}: {_plain(following.replace('cause: ', '', 1))}"
    return why


def _plain(line: str) -> str:
    text = _DECORATION.sub("", line).strip()
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown if len(shown) <= REASON_LENGTH else f"{shown[:REASON_LENGTH]}..."

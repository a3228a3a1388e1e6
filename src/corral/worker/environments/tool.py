"""Runs git and uv: an environment made for them alone, a time limit, last words.

What they start ends with them, and they end with us.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from corral.errors import EnvironmentFailed, WorkerError
from corral.process import group, spawn
from corral.process.keep_alive import KILL, bare_environment, tethered
from corral.worker import isolation
from corral.worker.isolation import Level, SandboxJob

TAIL_BYTES = 8192
REASON_LENGTH = 300
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


def run(
    argv: Sequence[str],
    *,
    variables: Mapping[str, str],
    folder: Path,
    timeout_s: float,
    what: str,
    mark: str = "",
    hidden: Iterable[str] = (),
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

    Raises:
        EnvironmentFailed: it cannot be started, failed or took too long; `.output`
            has the end of what it wrote.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = _run(argv, {**variables, _WORK: mark}, folder, timeout_s, (out, err))
        said = _hide(_tail(err) + (_tail(out) if code else ""), hidden)
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


def _run(
    argv: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    timeout_s: float,
    outputs: tuple[IO[bytes], IO[bytes]],
) -> int | None:
    """The exit code; None when the time was up."""
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
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        group.kill_group(child.pid)

    clock = threading.Timer(timeout_s, end)
    clock.start()
    try:
        group.await_exit(child)
    finally:
        # Before the pid is given back: it names the group.
        clock.cancel()
        clock.join()
        group.kill_group(child.pid)
        code = child.wait()
    return None if is_late.is_set() else code


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

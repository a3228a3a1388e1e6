"""The calls that run a command beside a running script and read what it prints."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from corral.client.exchange import Flow, Items, Request, Stream, get, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.task import TaskRef, id_of
from corral.client.value import Value

POLL_S = 20.0
_BEGIN_S = 15.0


class ExecInfo(Value, frozen=True, kw_only=True):
    """A command that runs beside one attempt of a task."""

    exec_id: str
    task_id: str
    attempt: int


class ExecOutput(Value, frozen=True, kw_only=True):
    """Something it printed; `stream` is stdout or stderr."""

    stream: str
    data: bytes


class ExecEnd(Value, frozen=True, kw_only=True):
    """How it ended; without an exit code `error` says why there is none."""

    exit_code: int | None = None
    error: str | None = None


class _Page(msgspec.Struct):
    chunks: list[ExecOutput]
    next: int
    done: bool
    exit_code: int | None = None
    error: str | None = None


def start_exec(task: TaskRef, command: Sequence[str]) -> Flow[ExecInfo]:
    """Run a command in the environment of a running script; returns when it runs.

    It ends when nobody reads its output for half a minute.

    Raises:
        Conflict: the task does not run, is no script, or the command is not there.
    """
    response = yield Request(
        "POST",
        f"/tasks/{segment(id_of(task))}/exec",
        body=encode({"command": list(command)}),
        wait_s=_BEGIN_S,
    )
    return decode(response, ExecInfo)


def exec_output(run: ExecInfo) -> Stream[ExecOutput | ExecEnd]:
    """What a command prints, as it prints it; last comes its end."""
    after = 0
    while True:
        page = decode(
            (yield get(_path(run), wait_s=POLL_S, after=after, wait=POLL_S)), _Page
        )
        if page.chunks:
            yield Items(page.chunks)
        elif page.done:
            yield Items([ExecEnd(exit_code=page.exit_code, error=page.error)])
            return
        after = page.next


def stop_exec(run: ExecInfo) -> Flow[None]:
    """End a command."""
    yield Request("DELETE", _path(run), is_repeatable=True)


def _path(run: ExecInfo) -> str:
    return f"/tasks/{segment(run.task_id)}/exec/{segment(run.exec_id)}"

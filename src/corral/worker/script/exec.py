"""Commands run beside a script, in its environment: `corral exec`.

What they print goes to the manager as it comes, and is kept nowhere. A command ends
with its script, when nobody reads it any more, and when the manager forgets it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import msgspec

from corral.errors import CorralError, WorkerError
from corral.worker.manager_link import Away, Fenced, ReportRefused
from corral.worker.script.access import ScriptAccess
from corral.worker.script.run import RunningScript, StartedCommand
from corral.worker.script.secrets import Mask, Masked

log = logging.getLogger(__name__)

Key = tuple[str, int]
HELD_BYTES = 256 * 1024
LOOK_S = 1.0
AWAY_S = 20.0
SIGNALLED = 128
UNKNOWN = 125
"""What the engine of a container that is gone says of commands in it."""
JOB_END_S = 5.0
"""A busy machine takes that long to see the end of a container."""


class ExecMessage(msgspec.Struct, omit_defaults=True):
    """What is new of a command; a number that came before is a repetition."""

    number: int
    chunks: list[tuple[str, bytes]] = msgspec.field(default_factory=list)
    exit_code: int | None = None
    error: str | None = None


class _ExecAnswer(msgspec.Struct):
    stop: bool = False


_decode = msgspec.json.Decoder(_ExecAnswer).decode


@dataclass(frozen=True, slots=True)
class CurrentScript:
    """The script that runs now, and what must not be seen of it."""

    key: Key
    running: RunningScript
    mask: Mask


class ScriptExecs:
    """The commands beside the one script of this runner."""

    def __init__(self, access: ScriptAccess) -> None:
        self._access = access
        self._current: CurrentScript | None = None
        self._known: set[str] = set()

    @contextmanager
    def open(self, key: Key, running: RunningScript, mask: Mask) -> Iterator[None]:
        """Commands may be run beside this script until the block ends."""
        self._current = CurrentScript(key, running, mask)
        try:
            yield
        finally:
            self._current = None
            self._known.clear()

    def start(self, id_: str, key: Key, command: Sequence[str]) -> None:
        """Run a command, unless it is known already; returns at once."""
        if id_ in self._known:
            return
        self._known.add(id_)
        path = f"/workers/{self._access.worker_id}/execs/{id_}"
        mail = ExecSender(self._access, path)
        scene = self._current
        if scene is not None and scene.key == key:
            work = partial(_run, scene, tuple(command), mail)
        else:
            work = partial(mail.refuse, "the script is being prepared, or has ended")
        threading.Thread(target=work, name=id_, daemon=True).start()


def _run(scene: CurrentScript, command: Sequence[str], mail: ExecSender) -> None:
    masked = Masked(scene.mask, mail.feed)
    try:
        with scene.mask.errors():
            started = scene.running.exec(command, masked.feed)
    except CorralError as error:
        mail.refuse(error.message)
        return
    mail.open(started)
    code = started.wait()
    masked.close()
    why = None
    # The end of a job takes the command along before its own end is known: a job that
    # was asked to end is on its way out, of another it shows a moment later.
    is_cut = code is None or code > SIGNALLED or code == UNKNOWN
    running = scene.running
    if is_cut and (running.is_stopping or running.wait(JOB_END_S) is not None):
        why = "the job has ended, and the command with it"
    mail.finish(code or 0, why)


class ExecSender:
    """Brings one command's output to the manager, no faster than it is taken."""

    def __init__(self, access: ScriptAccess, path: str) -> None:
        self._link = access.link()
        self._path = path
        self._number = 0
        self._changed = threading.Condition()
        self._chunks: list[tuple[str, bytes]] = []
        self._size = 0
        self._is_gone = False
        self._end: tuple[int, str | None] | None = None

    def refuse(self, why: str) -> None:
        """The command cannot be run."""
        self._send(ExecMessage(1, error=why))
        self._link.close()

    def open(self, command: StartedCommand) -> None:
        """The command runs: from now on what it prints is sent."""
        threading.Thread(target=self._mail, args=(command,), daemon=True).start()

    def feed(self, stream: str, data: bytes) -> None:
        """Take what was printed; a full box holds the command back."""
        with self._changed:
            self._changed.wait_for(lambda: self._size < HELD_BYTES or self._is_gone)
            if not self._is_gone:
                self._chunks.append((stream, data))
                self._size += len(data)
                self._changed.notify_all()

    def finish(self, code: int, why: str | None) -> None:
        with self._changed:
            self._end = (code, why)
            self._changed.notify_all()

    def _mail(self, command: StartedCommand) -> None:
        self._number = 1
        is_wanted = self._send(ExecMessage(1))
        while is_wanted:
            post = self._next()
            is_wanted = self._send(post)
            if post.exit_code is not None:
                break
        with self._changed:
            self._is_gone = True
            self._changed.notify_all()
        self._link.close()
        if not is_wanted:
            try:
                command.stop(0.0)
            except WorkerError as error:
                log.error("a command beside a script goes on: %s", error.message)

    def _next(self) -> ExecMessage:
        """What there is to say; nothing but a sign of life after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._end, LOOK_S)
            chunks, self._chunks, self._size = self._chunks, [], 0
            self._changed.notify_all()
            end = self._end or (None, None)
        self._number += 1
        return ExecMessage(self._number, chunks, *end)

    def _send(self, post: ExecMessage) -> bool:
        """Is more wanted? A manager that was started again knows no commands."""
        body = msgspec.json.encode(post)
        try:
            return not _decode(self._link.insist(self._path, body, AWAY_S)).stop
        except (Away, Fenced, ReportRefused):
            return False

"""One worker kept alive: its supervisor process, its word, and its restarts."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from corral.agent.life.breaker import Breakers, WorkerBreaker
from corral.agent.life.started_workers import WorkerJournal
from corral.agent.link.status_line import ObservedWorker, line_of
from corral.agent.restart_policy import ChildPolicy
from corral.core.backoff import Backoff
from corral.process import spawn
from corral.process.keep_alive import Restarts
from corral.process.log_file import last_line, log_path, open_log, rotate
from corral.wire.agent import DesiredWorker, WorkerBeat

LOG = logging.getLogger("corral.agent")
Box = queue.SimpleQueue[bytes | None]
# A supervisor's exit code when the manager wants another in its place.
_FENCED = 4
# We look every second: after so long we did not run ourselves.
_OWN_PAUSE_S = 5.0
# So much of its last line is told to the manager.
_SAID = 500


# What of our own environment workers inherit: where things are on this machine, how the
# network is reached, and what tunes the libraries of their trade. Whoever may start a
# worker reads it, so a name that usually holds a credential is none of these.
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|PWD|LANG|LANGUAGE|LC_\w+|TZ|TERM|COLORTERM"
    r"|TMPDIR|TEMP|TMP|XDG_\w+|DBUS_SESSION_BUS_ADDRESS|INVOCATION_ID"
    r"|PYTHON\w*|VIRTUAL_ENV|CONDA_\w+|LD_\w+|DYLD_\w+|MALLOC_\w+|COVERAGE_\w+"
    r"|(?i:(HTTP|HTTPS|ALL|NO)_PROXY)|SSL_CERT_(FILE|DIR)|GIT_SSL_CA(INFO|PATH)"
    r"|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS"
    # Read where projects are built, and taken away there from what they build.
    r"|(UV|PIP)_\w+"
    r"|DOCKER_CONFIG|REGISTRY_AUTH_FILE|CONTAINERS_\w+"
    r"|(CUDA|CUDNN|CUBLAS|NVIDIA|NCCL|GLOO|UCX|RDMAV|FI|ROCM|ROCR|HIP|HSA|MIOPEN|ZE|GPU"
    r"|ONEAPI|SYCL|MKL|OMP|KMP|GOMP|OPENBLAS|NUMEXPR|VECLIB|MPS|METAL)_\w+"
    r"|(TORCH|TORCHINDUCTOR|PYTORCH|TRITON|XLA|JAX|TF|KERAS|ONNX|ORT|TRANSFORMERS"
    r"|DIFFUSERS|TOKENIZERS|SAFETENSORS|HF|VLLM|SGLANG|LLAMA|GGML|OLLAMA)_\w+"
    r"|MPLCONFIGDIR"
    r"|SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|(LOCAL)?APPDATA|PROGRAM\w+"
    r"|USERPROFILE|NUMBER_OF_PROCESSORS|PROCESSOR_\w+"
    r"|CORRAL_\w+"
)
_CREDENTIAL = re.compile(r".*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|_KEY|APIKEY)")


def inherited(ours: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """What of an agent's environment its workers get; `more` are names, or NAME_*.

    Corral's own secrets are taken out of it when they are started, whatever is said.
    """
    return {
        name: value
        for name, value in ours.items()
        if any(fnmatchcase(name, entry) for entry in more)
        or (_INHERITED.fullmatch(name) and not _is_credential(name))
    }


def _is_credential(name: str) -> bool:
    # Those of builds are theirs to hide.
    is_build = name.startswith(("UV_", "PIP_"))
    return not is_build and _CREDENTIAL.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    """What every worker of one registration is started with."""

    argv: tuple[str, ...]
    line: Mapping[str, Any] = field(repr=False)
    logs: Path
    journal: WorkerJournal
    policy: ChildPolicy
    breakers: Breakers = field(default_factory=Breakers)
    shared_log: Path | None = None
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    """Of this process, what workers inherit; all of it where nothing is said."""


@dataclass(frozen=True, slots=True)
class SupervisorExit:
    """How a supervisor ended, in words, and whether that is a fault of its kind."""

    text: str
    is_fault: bool = True


class WorkerChild:
    """A thread that starts the supervisor, listens to it, and starts it again."""

    def __init__(
        self,
        worker: DesiredWorker,
        launch: WorkerLaunch,
        on_change: Callable[[], None],
        on_end: Callable[[], None],
        variables: Mapping[str, str] | None = None,
        on_error: Callable[[str, str], None] = lambda worker_id, error: None,
    ) -> None:
        self.worker = worker
        self.worker_id = worker.worker_id
        self.name = worker.name or self.worker_id
        self._launch = launch
        self._policy = launch.policy
        self._on_change = on_change
        self._on_end = on_end
        self._variables = dict(variables or {})
        self._on_error = on_error
        self._log_path = log_path(launch.logs, self.name)
        self._restarts = Restarts(
            Backoff(self._policy.first_delay_s, self._policy.longest_delay_s),
            steady_s=self._policy.healthy_after_s,
        )
        self._turn = WorkerBreaker(launch.breakers, worker, self._policy.steady_s)
        self._is_halted = False
        self._lock = threading.Lock()
        self._word = ObservedWorker()
        self._spoke_at = self._looked_at = time.monotonic()
        # A machine that stood still hears of its workers only after we look at them.
        self._paused_until = 0.0
        self._process: spawn.Spawned | None = None
        self._mark = ""
        self._box: Box = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._kill_at: float | None = None

    def start(self) -> None:
        threading.Thread(
            target=self._keep, name=f"worker-{self.name}", daemon=True
        ).start()

    @property
    def is_over(self) -> bool:
        """It was stopped, and nothing of it is left."""
        return self._over.is_set()

    @property
    def word(self) -> ObservedWorker:
        with self._lock:
            return self._word

    def entry(self, now: float, facts: Mapping[str, Any]) -> WorkerBeat:
        """This worker's part of a heartbeat; `facts` are its agent's."""
        with self._lock:
            word, spoke_at = self._word, self._spoke_at
        age_s, breaker = now - spoke_at, self._turn.report(word)
        return word.entry(self.worker_id, age_s, facts, breaker)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Put one line on its stdin, without ever waiting for it to be read."""
        with self._lock:
            self._box.put(line_of(message))

    def stop(self, grace_s: float) -> None:
        """Ask it to finish what it is at; `tick` ends it when the grace is over."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._kill_at = time.monotonic() + grace_s
            self._stopping.set()
            running = self._process
        self._turn.ring()
        if running is not None:
            spawn.ask_to_stop(running)

    def kill(self) -> None:
        """End it now, with everything it started."""
        with self._lock:
            self._kill_at = time.monotonic()
            self._stopping.set()
        self._turn.ring()
        self._end_family()

    def wait(self, timeout_s: float) -> bool:
        return self._over.wait(timeout_s)

    def tick(self, now: float) -> None:
        """Once a second: overdue stops, supervisors gone silent, grown logs."""
        rotate(self._log_path, self._policy.log_limit_bytes)
        if self._launch.shared_log is not None:
            rotate(self._launch.shared_log, self._policy.log_limit_bytes)
        self._turn.tick(self.word, now)
        self._halt_if_due()
        with self._lock:
            running, kill_at = self._process, self._kill_at
            if now - self._looked_at > _OWN_PAUSE_S:
                self._paused_until = now
            self._looked_at = now
            heard_at = max(self._spoke_at, self._paused_until)
            silent = now - heard_at > self._policy.silent_after_s
        if running is None:
            return
        if kill_at is not None and now >= kill_at:
            self._end_family("did not stop in time")
        elif silent:
            self._end_family("said nothing for too long")
        elif running.poll() is not None:
            # Dead, and yet its stream has not ended: something it started still
            # holds the other end.
            self._end_family()

    def _end_family(self, why: str = "") -> None:
        if why:
            LOG.warning("worker %s %s: killing it", self.name, why)
        with self._lock:
            running, mark = self._process, self._mark
        if running is not None:
            spawn.kill_family(running, mark)

    def _halt_if_due(self) -> None:
        """Stop it, as gently as for good, when its breaker says so."""
        if not self._turn.must_halt(self.word):
            return
        with self._lock:
            running = self._process
            if running is None or self._is_halted or self._stopping.is_set():
                return
            self._is_halted = True
            self._kill_at = time.monotonic() + self._policy.stop_grace_s
        spawn.ask_to_stop(running)

    def _keep(self) -> None:
        self._restarts.keep(
            self._live, lambda pause_s: self._turn.wait(pause_s, self._stopping)
        )
        self._turn.leave()
        self._over.set()
        self._on_end()

    def _live(self) -> float:
        """One life of the supervisor; after how many seconds the next may begin."""
        try:
            fate = self._run()
        except Exception:
            LOG.exception("worker %s: a fault inside the agent", self.name)
            fate = SupervisorExit("met a fault inside the agent", is_fault=False)
            self._end_family()
        return 0.0 if self._stopping.is_set() else self._bury(fate)

    def _run(self) -> SupervisorExit:
        """One life of the supervisor; how it ended."""
        mark = ""
        try:
            mark = self._launch.journal.begin(self.worker_id)
            with open_log(self._log_path) as log:
                offset = log.seek(0, os.SEEK_END)
                launch = self._launch
                running = spawn.spawn(
                    launch.argv, mark, log, self._variables, launch.environment
                )
        except OSError as error:
            self._launch.journal.ended(mark)
            return SupervisorExit(f"cannot be started: {error}")
        self._launch.journal.started(mark, running.pid)
        self._greet(running, mark)
        self._listen(running)
        code = self._reap(running, mark)
        said = last_line(self._log_path, offset)[:_SAID]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        text = f"ended with {how}" + (f": {said}" if said else "")
        return SupervisorExit(text, is_fault=code != _FENCED)

    def _greet(self, running: spawn.Spawned, mark: str) -> None:
        greeting = {
            **self._launch.line,
            "worker_id": self.worker_id,
            "spec": self.worker.to_dict(),
        }
        box: Box = queue.SimpleQueue()
        box.put(line_of(greeting))
        with self._lock:
            self._process, self._mark, self._box = running, mark, box
            stopping = self._stopping.is_set()
            if not stopping:
                self._is_halted, self._kill_at = False, None
        self._say(self.word.started(running.pid))
        assert running.stdin is not None
        threading.Thread(
            target=_post, args=(running.stdin, box), name="worker-stdin", daemon=True
        ).start()
        if stopping:
            # It was stopped while it was being started, and has seen no signal.
            spawn.kill_family(running, mark)

    def _listen(self, running: spawn.Spawned) -> None:
        """Take its word line by line until its end, which ends the stream too."""
        assert running.stdout is not None
        with running.stdout as lines:
            for line in lines:
                try:
                    before, word = self.word, self.word.heard(line)
                except ValueError:
                    LOG.warning("worker %s said %r", self.name, line[:200])
                    continue
                self._turn.heard(before, word)
                if word.error and word.error != before.error:
                    self._on_error(self.worker_id, word.error)
                self._say(word)
                self._halt_if_due()

    def _reap(self, running: spawn.Spawned, mark: str) -> int:
        # The stream ends a moment before the process does; only one that stays on
        # without its stream is killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(timeout=1.0)
        spawn.kill_family(running, mark)
        code = running.wait()
        with self._lock:
            self._process = None
            self._box.put(None)
        self._launch.journal.ended(mark)
        return code

    def _bury(self, fate: SupervisorExit) -> float:
        """Note its end; after how many seconds it may start again."""
        was_halted, self._is_halted = self._is_halted, False
        if was_halted:
            fate = SupervisorExit("was stopped by its breaker", is_fault=False)
        elif fate.is_fault:
            self._turn.died(self.word, fate.text)
            self._on_error(self.worker_id, fate.text)
        self._turn.leave()
        when = "waits for its breaker"
        if self._turn.is_closed:
            delay = self._restarts.end()
            when = f"starts again in {delay:.1f} s"
        else:
            # Its cool-down is the delay now; ours begin anew after it.
            self._restarts.reset()
            delay = self._policy.first_delay_s
        LOG.warning("worker %s %s; %s", self.name, fate.text, when)
        # Deaths in a row are no accident any more: the worker is shown as broken.
        # It is still tried again, at the longest delay.
        broken = self._restarts.failures >= self._policy.deaths_to_error
        self._say(self.word.died(fate.text, broken=broken))
        return delay

    def _say(self, word: ObservedWorker) -> None:
        with self._lock:
            before, self._word = self._word, word
            self._spoke_at = time.monotonic()
        if word.is_news(before):
            self._on_change()


def _post(stdin: IO[bytes], box: Box) -> None:
    """Write what is put in the box; the pipe stays open until the process is gone."""
    with contextlib.suppress(OSError, ValueError), stdin:
        while (line := box.get()) is not None:
            stdin.write(line)
            stdin.flush()

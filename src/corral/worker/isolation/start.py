"""Starts a job: gathers its environment, limits and mounts, and hands it to a guardian.

The caller may be killed at any moment: from the first process on, ending the job is
the guardian's care.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corral.errors import WorkerError
from corral.worker import temporary
from corral.worker.isolation import cgroup, job_user, network, sandbox
from corral.worker.isolation.cgroup import Parent
from corral.worker.isolation.job import Level, SandboxJob
from corral.worker.isolation.network import RESOLVER, Network
from corral.worker.isolation.process import (
    JobPlace,
    OnOutput,
    RunningJob,
    first_of,
    pipe,
)
from corral.worker.isolation.variables import MARK, clean_environment

log = logging.getLogger(__name__)

# Bubblewrap and the first process of its pid namespace.
_WRAPPERS = {Level.SANDBOX: 2, Level.PROCESS: 0}
_lock = threading.Lock()
_best: Level | None = None


def start(
    job: SandboxJob,
    on_output: OnOutput,
    level: Level | None = None,
    parents: tuple[Parent, ...] | None = None,
    pipes: tuple[int, int] | None = None,
) -> RunningJob:
    """Run `job`; returns once its program runs.

    `on_output` gets `stdout` or `stderr` and bytes, from a thread for each. A slow
    one holds the job back; memory stays the same. Level, and where control groups
    are made, are the best there is here unless told. `pipes` become its stdin, which
    is empty otherwise, and its stdout; they are closed here.

    Raises:
        WorkerError: the command, a folder or the level is not there; in one line.
    """
    level = best_level() if level is None else level
    _check(job)
    for folder in (job.home, job.temporary):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    wrappers = _WRAPPERS[level]
    where = cgroup.parents() if parents is None else parents
    groups = cgroup.plan(where, job.limits, wrappers)
    scene = JobPlace(job, level, groups)
    told: dict[str, Any] = {
        "argv": sandbox.script("launch.py"),
        "options": [],
        "wrappers": wrappers,
        "groups": groups.plain,
        "peak_file": groups.peak_file,
        "oom_file": groups.oom_file,
        "watch_mb": None if "memory" in groups.controllers else job.limits.memory_mb,
        "launch": _launch(scene, job.argv, is_init=level is Level.SANDBOX),
        "network": None,
    }
    if level is Level.SANDBOX:
        if job.network is Network.OWN:
            job.resolver.write_text(f"nameserver {RESOLVER}\n", encoding="ascii")
            told["network"] = network.plan(job.reach)
        if user := job_user.job_user(job):
            job_user.hand_over(job, user)
        told |= {"argv": sandbox.command(), "options": sandbox.options(job)}
    return _guard(scene, told, on_output, pipes)


def start_beside(
    running: RunningJob, argv: tuple[str, ...], on_output: OnOutput
) -> RunningJob:
    """Run `argv` in the environment and namespaces of a running job."""
    scene = running.scene
    is_inside = scene.level is Level.SANDBOX
    told: dict[str, Any] = {
        "argv": sandbox.script("launch.py"),
        "options": [],
        "wrappers": 1 if is_inside else 0,
        "groups": cgroup.joining(scene.groups),
        "peak_file": "",
        "oom_file": "",
        "watch_mb": None,
        "launch": _launch(scene, argv, is_init=False),
        "network": None,
    }
    if is_inside:
        told["launch"]["enter"] = first_of(running.pid)
    return _guard(replace(scene, is_whole=False), told, on_output)


def level_for(wanted: str) -> Level:
    """How a job is kept where its node's administrator wants it so.

    Raises:
        WorkerError: there is no sandbox here, and nobody said that it goes without.
    """
    if wanted == Level.PROCESS:
        return Level.PROCESS
    if best_level() is not Level.SANDBOX:
        raise WorkerError(
            "this node has no sandbox to run it in: install bubblewrap there "
            "('corral doctor' says what is missing), or set CORRAL_ISOLATION=process "
            "to run code of users as the agent's own user"
        )
    return Level.SANDBOX


def best_level() -> Level:
    """The best isolation this machine allows; tried for real, once."""
    global _best
    with _lock:
        if _best is None:
            _best = _probe()
        return _best


def try_network() -> bool:
    """Does a sandbox here start with a network of its own?"""
    return best_level() is Level.SANDBOX and not _try(Network.OWN)


def _probe() -> Level:
    if why := _try(Network.NONE):
        log.warning("there is no sandbox here: %s", why)
        return Level.PROCESS
    return Level.SANDBOX


def _try(kind: Network) -> str:
    """Why no sandbox with such a network starts; nothing when one does."""
    said = bytearray()
    temporary.forget_dead("probe")
    with tempfile.TemporaryDirectory(prefix=temporary.prefix("probe")) as name:
        place = Path(name)
        (place / "folder").mkdir()
        job = SandboxJob(
            ("true",),
            place / "folder",
            place / "scratch",
            f"probe-{os.getpid()}",
            network=kind,
        )
        try:
            running = start(job, lambda _, data: said.extend(data), Level.SANDBOX)
            if running.wait() == 0:
                return ""
            return said.decode(errors="replace").strip() or "it ended with a fault"
        except WorkerError as error:
            return f"{error.message} {said.decode(errors='replace')}".strip()


def _check(job: SandboxJob) -> None:
    if sys.platform != "linux":
        raise WorkerError("commands are run on Linux only")
    if not job.argv or not job.argv[0]:
        raise WorkerError("there is no command")
    texts = [*job.argv, *job.environment, *job.environment.values(), job.mark]
    if any("\0" in text for text in texts):
        raise WorkerError("a command or variable contains a zero byte")
    if not job.folder.is_dir():
        raise WorkerError(f"the folder {job.folder} is not there")


def _launch(scene: JobPlace, argv: Sequence[str], *, is_init: bool) -> dict[str, Any]:
    job = scene.job
    user = job_user.job_user(job) if scene.level is Level.SANDBOX else None
    return {
        "argv": list(argv),
        "env": clean_environment({**os.environ, **job.shown}, job),
        "cwd": str(job.folder.absolute()),
        "user": [user.uid, user.gid, list(user.groups)] if user else None,
        "rlimits": _rlimits(scene),
        "is_init": is_init,
        "enter": 0,
    }


def _rlimits(scene: JobPlace) -> list[tuple[str, int]]:
    job, limits, has = scene.job, scene.job.limits, scene.groups.controllers
    found = [("CORE", 0)]
    if limits.file_size_mb is not None:
        found.append(("FSIZE", limits.file_size_mb << 20))
    if limits.open_files is not None:
        found.append(("NOFILE", limits.open_files))
    if limits.processes is not None and "pids" not in has:
        found.append(("NPROC", _tasks_of(scene) + limits.processes))
    # What is written to, not what is reserved: and still not for GPU jobs, whose
    # drivers map more than any machine has.
    if limits.memory_mb is not None and "memory" not in has and not job.uses_gpu:
        found.append(("DATA", limits.memory_mb << 20))
    return found


def _tasks_of(scene: JobPlace) -> int:
    """The kernel counts that limit per user: those that are there come on top."""
    user = job_user.job_user(scene.job) if scene.level is Level.SANDBOX else None
    uid = user.uid if user else os.geteuid()
    found = 0
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if place.stat().st_uid == uid:
                found += len(os.listdir(place / "task"))
    return found


def _processors(scene: JobPlace) -> list[int]:
    """Where no group limits time, as many processors as the limit, rounded up."""
    cpus = scene.job.limits.cpus
    if cpus is None or "cpu" in scene.groups.controllers:
        return []
    ours = sorted(os.sched_getaffinity(0))
    first = hash(scene.job.mark) % len(ours)
    return (ours[first:] + ours[:first])[: max(1, math.ceil(cpus))]


def _guard(
    scene: JobPlace,
    told: dict[str, Any],
    on_output: OnOutput,
    pipes: tuple[int, int] | None = None,
) -> RunningJob:
    outputs = {"stderr": pipe()}
    if pipes is None:
        outputs["stdout"] = pipe()
        pipes = os.open(os.devnull, os.O_RDONLY), outputs["stdout"][1]
    ours = {name: ends[0] for name, ends in outputs.items()}
    theirs = [*pipes, outputs["stderr"][1]]
    told |= {
        "parent": os.getpid(),
        **dict(zip(("in", "out", "err"), theirs, strict=True)),
        "processors": _processors(scene),
        "env": {"PATH": os.defpath, "LANG": "C.UTF-8", MARK: scene.job.mark},
        "option_fd": sandbox.OPTION_FD,
    }
    try:
        process = subprocess.Popen(
            sandbox.script("guardian.py"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=told["env"],
            cwd="/",
            pass_fds=theirs,
            start_new_session=True,
        )
    except OSError as error:
        for fd in ours.values():
            os.close(fd)
        raise WorkerError(f"no process can be started: {error}") from error
    finally:
        for fd in theirs:
            os.close(fd)
    running = RunningJob(scene, process, ours, on_output)
    running.tell(told)
    running.await_start()
    return running

"""Starts a script where it belongs: in a sandbox of this machine, or a container."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from corral.core.tasks.environment import ContainerEnvironment
from corral.core.tasks.script import Script
from corral.errors import CorralError
from corral.worker import isolation, temporary
from corral.worker.container.guardian import SERVICE
from corral.worker.environments.cache import Cache
from corral.worker.environments.prepare import own_python, prepare
from corral.worker.script.access import ScriptAccess

if TYPE_CHECKING:
    from corral.worker.container.engine import ContainerEngine

log = logging.getLogger(__name__)

OnOutput = Callable[[str, bytes], None]
INSIDE = "/corral"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class StartedCommand(Protocol):
    """A command that was started, of whatever kind."""

    def wait(self, timeout_s: float | None = None) -> int | None: ...

    def stop(self, grace_s: float) -> None: ...


class RunningScript(StartedCommand, Protocol):
    """A script that was started, of whatever kind."""

    oom_killed: bool
    is_stopping: bool
    """Was it asked to end? What runs beside it ends sooner than it does."""

    @property
    def is_lost(self) -> bool: ...

    def exec(self, argv: Sequence[str], on_output: OnOutput) -> StartedCommand: ...


@dataclass(slots=True)
class AttemptFolders:
    """Folders of one attempt. `outside` lists those that outlive the script."""

    scratch: Path
    artifacts: Path
    checkpoint: Path
    mark: str
    variables: dict[str, str]
    facts: dict[str, Any] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    """What it was given of this node's GPUs, and who else is of its gang."""
    folder: Path | None = None
    """Where the script runs, once it does, if that is on this machine."""


class Starter:
    """Runs scripts on this node; knows neither tasks nor reports."""

    def __init__(self, access: ScriptAccess) -> None:
        self._access = access
        code = access.code
        self.cache = Cache(Path(code.cache), code.limit_bytes)
        self._policy = code.environments(access.manager_url, code.isolation)
        self._reach = self._policy.reach
        self._engine: ContainerEngine | None = None
        self._engine_lock = threading.Lock()

    def start(
        self,
        script: Script,
        place: AttemptFolders,
        on_output: OnOutput,
        held: ExitStack,
    ) -> RunningScript:
        """Fetch, build and start; what must outlive the start is put into `held`.

        Raises:
            CorralError: why not, in one line. Nothing is left behind.
        """
        if isinstance(script.environment, ContainerEnvironment):
            return self._in_container(script, script.environment, place, on_output)
        return self._in_process(script, place, on_output, held)

    def _in_process(
        self,
        script: Script,
        place: AttemptFolders,
        on_output: OnOutput,
        held: ExitStack,
    ) -> RunningScript:
        folder = place.scratch / "work"
        variables: Mapping[str, str] = {"PATH": _path(sys.executable)}
        if script.environment is None:
            folder.mkdir()
            more, readable = own_python(self.cache, folder)
            variables = {**variables, **more}
        else:
            assert not isinstance(script.environment, ContainerEnvironment)
            made = held.enter_context(
                prepare(
                    script.environment,
                    cache=self.cache,
                    fetch=self._access.link().get_object,
                    fetch_code=self._access.link().get_code,
                    policy=self._policy,
                    for_runner=False,
                )
            )
            folder, readable = made.folder, made.reads
            variables = {"PATH": _path(made.python), **made.variables}
            place.facts.update(made.facts)
        place.folder = folder
        level = isolation.level_for(self._access.code.isolation)
        job = isolation.SandboxJob(
            argv=script.command,
            folder=folder,
            scratch=place.scratch,
            mark=place.mark,
            environment={**variables, **place.variables},
            readable=readable,
            writable=(place.artifacts, place.checkpoint),
            hidden=(self.cache.folder, *map(Path, self._access.code.hidden)),
            limits=isolation.SandboxLimits(
                memory_mb=script.limits.memory_mb,
                cpus=script.limits.cpus,
                processes=script.limits.processes,
                file_size_mb=script.limits.file_size_mb,
            ),
            gpus=script.gpus,
            shown=place.shown,
            network=self._network(script, place, level),
            reach=self._reach,
        )
        running = isolation.start(job, on_output, level)
        place.facts["isolation"] = running.isolation
        place.facts["network"] = str(job.network)
        return running

    def _network(
        self, script: Script, place: AttemptFolders, level: isolation.Level
    ) -> isolation.Network:
        if level is isolation.Level.PROCESS:
            return isolation.Network.HOST
        wanted = isolation.Network(script.network)
        if wanted is isolation.Network.OWN and "MASTER_ADDR" in place.shown:
            # One that others reach, and that reaches them at their addresses.
            wanted = isolation.Network.HOST
        return self._reach.choose(wanted)

    def _in_container(
        self,
        script: Script,
        environment: ContainerEnvironment,
        place: AttemptFolders,
        on_output: OnOutput,
    ) -> RunningScript:
        from corral.worker.container.job import (
            ContainerJob,
            bound_gpus,
            bound_variables,
            read_volumes,
        )

        may_use_network = self._access.containers.may_use_network
        job = ContainerJob(
            image=environment.image,
            argv=script.command,
            mark=place.mark,
            folders={
                str(place.artifacts): (f"{INSIDE}/artifacts", "rw"),
                str(place.checkpoint): (f"{INSIDE}/checkpoint", "rw"),
            },
            volumes=read_volumes(environment.volumes),
            working_dir=environment.working_dir,
            environment={
                **environment.environment,
                **place.variables,
                **place.shown,
                **bound_variables({**os.environ, **place.shown}),
                "CORRAL_ARTIFACTS": f"{INSIDE}/artifacts",
                "CORRAL_CHECKPOINT": f"{INSIDE}/checkpoint",
            },
            devices=environment.devices,
            limits=isolation.SandboxLimits(
                memory_mb=script.limits.memory_mb,
                cpus=script.limits.cpus,
                processes=script.limits.processes,
                file_size_mb=script.limits.file_size_mb,
            ),
            gpus=bound_gpus({**os.environ, **place.shown}),
            network=script.network != "none" and may_use_network,
        )
        running = self._have_engine().start(job, on_output)
        place.facts["isolation"] = running.isolation
        return running

    def _have_engine(self) -> ContainerEngine:
        with self._engine_lock:
            if self._engine is None:
                trace = self._access.container_trace
                trace.parent.mkdir(parents=True, exist_ok=True)
                trace.touch()
                self._engine = self._access.containers.engine()
            return self._engine

    def sweep(self) -> None:
        """Remove folders that the dead have left; cheap, and done before each task."""
        self.cache.sweep()
        temporary.forget_dead(SERVICE)

    def sweep_containers(self) -> None:
        """Remove those of runners that were killed together with their guardian."""
        if self._access.container_trace.exists():
            try:
                self._have_engine().sweep_dead(f"{self._access.worker_id}.")
            except CorralError as error:
                log.warning("containers are not swept: %s", error.message)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


def _path(python: str) -> str:
    """Where `python` of the environment comes first."""
    return os.pathsep.join((str(Path(python).parent), _PATH))

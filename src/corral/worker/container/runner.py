"""Starts a worker's runner inside an image, and is the transport it lives in.

Frames go through a socket in a folder of the runner's own; the cell file is mounted
beside it, and this package, read-only, so that an image needs a Python alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import IO

import msgspec

import corral
from corral.core.tasks.environment import ContainerEnvironment
from corral.errors import WorkerError
from corral.worker.container import boot
from corral.worker.container.container import RunningContainer
from corral.worker.container.engine import ContainerEngine
from corral.worker.container.guardian import run_prefix
from corral.worker.container.job import ContainerJob, Gpus, Mode, read_volumes
from corral.worker.isolation.job import SandboxLimits
from corral.worker.pool.transport import RunnerSpec
from corral.worker.shared_counters import SharedCells

log = logging.getLogger(__name__)

START_S = 120.0
LOOK_S = 0.1
RUN = "/corral/run"
BOOT = f"{boot.LIBRARY}/corral/worker/container/boot.py"
PYTHONS = ("python3", "python")


class ContainerLaunch:
    """How to start runners of one worker in containers: `RunnerSpec(launch=...)`."""

    def __init__(
        self,
        engine: ContainerEngine,
        environment: ContainerEnvironment,
        mark: str,
        *,
        limits: SandboxLimits | None = None,
        gpus: Gpus | None = None,
        network: bool = False,
    ) -> None:
        self._engine = engine
        self._environment = environment
        self._mark = mark
        self._limits = limits or SandboxLimits()
        self._gpus = gpus
        self._network = network

    def __call__(self, spec: RunnerSpec, cells: SharedCells) -> ContainerTransport:
        """Start one runner.

        Raises:
            WorkerError: no image, no Python or no msgspec in it, or no engine.
        """
        boxed = ContainerTransport(self._engine.owner)
        try:
            self._start(boxed, spec, cells)
        except BaseException:
            boxed.close()
            raise
        return boxed

    def _start(
        self, boxed: ContainerTransport, spec: RunnerSpec, cells: SharedCells
    ) -> None:
        *others, last = (spec.python,) if spec.python else PYTHONS
        for python in others:
            try:
                return boxed.start(self._engine, self._job(boxed, spec, cells, python))
            except WorkerError as error:
                if not error.details.get("missing"):
                    raise
        return boxed.start(self._engine, self._job(boxed, spec, cells, last))

    def _job(
        self,
        boxed: ContainerTransport,
        spec: RunnerSpec,
        cells: SharedCells,
        python: str,
    ) -> ContainerJob:
        told = self._environment
        return ContainerJob(
            image=told.image,
            argv=(BOOT, f"{RUN}/cells", f"{RUN}/frames"),
            entrypoint=(python,),
            mark=self._mark,
            folders=_folders(boxed.folder, spec, cells),
            volumes=read_volumes(told.volumes),
            working_dir=told.working_dir or (str(spec.folder) if spec.folder else ""),
            environment={
                "HOME": "/tmp",
                "PYTHONDONTWRITEBYTECODE": "1",
                **told.environment,
                **spec.variables,
            },
            devices=told.devices,
            limits=self._limits,
            gpus=self._gpus,
            network=self._network,
        )


def _folders(
    own: Path, spec: RunnerSpec, cells: SharedCells
) -> dict[str, tuple[str, Mode]]:
    folders: dict[str, tuple[str, Mode]] = {
        str(own): (RUN, "rw"),
        cells.path: (f"{RUN}/cells", "rw"),
        str(Path(corral.__file__).parent): (f"{boot.LIBRARY}/corral", "ro"),
        str(Path(msgspec.__file__).parent): (f"{boot.BINARY}/msgspec", "ro"),
    }
    if spec.folder:
        folders[str(spec.folder)] = (str(spec.folder), "ro")
    return folders


class ContainerTransport:
    """A runner in a container, with two connections to it."""

    def __init__(self, owner: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=run_prefix(owner)))
        self.folder.joinpath("cells").touch()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(self.folder / "frames"))
        self._listener.listen(2)
        self._listener.settimeout(LOOK_S)
        self._running: RunningContainer | None = None
        self._inlet: socket.socket | None = None
        self._outlet: IO[bytes] | None = None
        self._words: deque[bytes] = deque(maxlen=64)

    @property
    def pid(self) -> int:
        return self._running.pid if self._running else 0

    @property
    def inlet(self) -> int:
        assert self._inlet is not None
        return self._inlet.fileno()

    @property
    def outlet(self) -> IO[bytes]:
        assert self._outlet is not None
        return self._outlet

    def start(self, engine: ContainerEngine, job: ContainerJob) -> None:
        """Start the container and wait until the runner has called back.

        Raises:
            WorkerError: it did not, and why.
        """
        self._running = engine.start(job, self._on_output)
        deadline = time.monotonic() + START_S
        self._inlet = self._accept(job.image, deadline)
        outlet = self._accept(job.image, deadline)
        self._outlet = outlet.makefile("rb")
        outlet.close()

    def kill(self) -> None:
        assert self._running is not None
        self._running.signal(9)

    def await_exit(self) -> None:
        assert self._running is not None
        self._running.wait()

    def finish(self) -> int:
        code = self._running.wait() if self._running else None
        oom = self._running is not None and self._running.oom_killed
        if oom:
            log.warning("the runner's container ran out of memory")
        self.close()
        code = 0 if code is None else code
        return 128 - code if code > 128 else code

    def close(self) -> None:
        """Take away everything; the container, too."""
        if self._running is not None:
            self._running.stop(0)
        self._listener.close()
        if self._inlet is not None:
            self._inlet.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self, image: str, deadline: float) -> socket.socket:
        assert self._running is not None
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.setblocking(True)
                return connection
            if (code := self._running.wait(0)) is not None:
                raise WorkerError(self._why(image, code), image=image)
        raise WorkerError(
            f"the runner in image {image!r} did not start within {START_S:.0f} s",
            image=image,
        )

    def _why(self, image: str, code: int) -> str:
        said = b"".join(self._words).decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        if code == boot.UNFIT and last:
            return f"image {image!r} cannot hold a worker: {last}"
        ended = f"the runner in image {image!r} ended with code {code}"
        return f"{ended}: {last}" if last else ended

    def _on_output(self, _stream: str, data: bytes) -> None:
        # As with any runner, what is printed beside tasks is for the worker's log.
        if self._outlet is None:
            self._words.append(data[-4096:])
        with contextlib.suppress(OSError):
            os.write(2, data)

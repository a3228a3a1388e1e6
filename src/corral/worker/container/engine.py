"""Docker or Podman of this machine: found, asked to start containers, swept."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.errors import APIError, DockerException, ImageNotFound

from corral.errors import WorkerError
from corral.worker.container import fault
from corral.worker.container.guard import Guard
from corral.worker.container.guardian import forget_folders
from corral.worker.container.job import ContainerJob, ContainerSettings
from corral.worker.container.request import MARK, OWNER, Traits, create_body
from corral.worker.container.running import ENGINE_FAULTS, Running, remove
from corral.worker.container.stream import Stream
from corral.worker.isolation.running import OnOutput

CALL_S = 60
KNOCK_S = 5.0
POOL = 64


class Engine:
    """One engine; safe to use from several threads. `close` removes what it started."""

    def __init__(
        self, host: str, settings: ContainerSettings, guard: Guard | None = None
    ) -> None:
        self.host = host
        self.owner = guard.owner if guard else uuid.uuid4().hex
        self._settings = settings
        self._guard = guard
        self._guard_lock = threading.Lock()
        _knock(host)
        # Any: parts of the SDK's types are missing.
        self._api: Any = APIClient(
            base_url=host, version="auto", timeout=CALL_S, max_pool_size=POOL
        )
        self.traits = _look(self._api)

    def images(self) -> list[str]:
        """Names of the images on this node."""
        with _answering(self.host):
            tags = [image.get("RepoTags") or [] for image in self._api.images()]
        return sorted({tag for each in tags for tag in each})

    def start(self, job: ContainerJob, on_output: OnOutput) -> Running:
        """Start a container; its output goes to `on_output` from a thread of its own.

        Raises:
            WorkerError: why it cannot be started, on one line. Nothing is left then.
        """
        asked = create_body(job, self._settings, self.traits, self.owner)
        self._have_guard()
        with _answering(self.host):
            try:
                self._have_image(job.image)
                return self._start(asked, on_output, job.limits.memory_mb is not None)
            except APIError as error:
                argv = (*job.entrypoint, *job.argv)
                raise fault.of_start(job.image, argv, error) from error

    def sweep(self, mark_prefix: str) -> list[str]:
        """Remove containers that a dead predecessor left; their marks.

        Only what carries a mark with this prefix and is not this engine's own.
        """
        with _answering(self.host):
            found = self._api.containers(all=True, filters={"label": MARK})
        marks = []
        for container in found:
            labels = container.get("Labels") or {}
            mark = labels.get(MARK, "")
            if mark.startswith(mark_prefix) and labels.get(OWNER) != self.owner:
                remove(self._api, container["Id"])
                forget_folders(labels.get(OWNER) or "-")
                marks.append(mark)
        return marks

    def close(self) -> None:
        self._api.close()
        with self._guard_lock:
            if self._guard is not None:
                self._guard.close()
                self._guard = None

    def _start(
        self, asked: dict[str, Any], on_output: OnOutput, has_memory_limit: bool
    ) -> Running:
        id_ = self._api.create_container(**asked)["Id"]
        stream = None
        try:
            # Before the start, so that no output is missed.
            streams = {"stdout": 1, "stderr": 1, "stream": 1}
            stream = Stream(self._api.attach_socket(id_, params=streams))
            running = Running(
                self._api, id_, stream, on_output, has_memory_limit=has_memory_limit
            )
            running.begin()
        except BaseException:
            if stream is not None:
                stream.close()
            remove(self._api, id_)
            raise
        return running

    def _have_guard(self) -> None:
        with self._guard_lock:
            if self._guard is None:
                self._guard = Guard(self.owner, host=self.host)

    def _have_image(self, image: str) -> None:
        with contextlib.suppress(ImageNotFound):
            self._api.inspect_image(image)
            return
        if not self._settings.may_pull:
            raise fault.of_image(image, None)
        try:
            name, tag = _split(image)
            for line in self._api.pull(name, tag=tag, stream=True, decode=True):
                if "error" in line:
                    raise DockerException(line["error"])
            self._api.inspect_image(image)
        except DockerException as error:
            raise fault.of_image(image, error) from error


def find(settings: ContainerSettings) -> Engine | None:
    """The engine that was named, or the first that answers; None without any.

    Raises:
        WorkerError: the one that was named cannot be used.
    """
    if settings.host:
        return _named(settings)
    for path in _usual_sockets():
        if path.is_socket():
            with contextlib.suppress(*ENGINE_FAULTS):
                return Engine(f"unix://{path}", settings)
    if podman := shutil.which("podman"):
        guard = Guard(uuid.uuid4().hex, podman=podman)
        return Engine(guard.host, settings, guard)
    return None


def _named(settings: ContainerSettings) -> Engine:
    host = settings.host
    if not host.startswith(("unix://", "npipe://")):
        raise WorkerError(
            f"{host!r} is no engine on this machine, and a job's folders cannot be "
            "mounted elsewhere: give unix:///path/to/socket"
        )
    with _answering(host):
        return Engine(host, settings)


def _usual_sockets() -> list[Path]:
    if sys.platform == "win32":
        return []
    user = Path("/run/user") / str(os.getuid())
    home = Path.home()
    return [
        Path("/var/run/docker.sock"),
        user / "docker.sock",
        home / ".docker" / "run" / "docker.sock",
        *([Path("/run/podman/podman.sock")] if os.getuid() == 0 else []),
        user / "podman" / "podman.sock",
    ]


def _knock(host: str) -> None:
    # First, as the SDK leaves a socket open when nobody answers.
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(KNOCK_S)
            probe.connect(host.removeprefix("unix://"))


def _look(api: APIClient) -> Traits:
    version, info = api.version(), api.info()
    parts = [part.get("Name", "") for part in version.get("Components") or []]
    rootless = any("rootless" in word for word in info.get("SecurityOptions") or [])
    return Traits(
        version=version.get("Version", ""),
        is_podman=any("Podman" in part for part in parts),
        is_rootless=bool(info.get("Rootless")) or rootless,
        api=api.api_version,
    )


def _split(image: str) -> tuple[str, str | None]:
    """Without a tag the SDK would pull every one of them."""
    if "@" in image or ":" in image.rpartition("/")[2]:
        return image, None
    return image, "latest"


@contextlib.contextmanager
def _answering(host: str) -> Iterator[None]:
    try:
        yield
    except ENGINE_FAULTS as error:
        raise WorkerError(
            f"the container engine at {host} does not answer: {fault.one_line(error)}"
        ) from error

"""Docker or Podman of this machine: found, asked to start containers, swept."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from docker import APIClient
from docker.errors import APIError, DockerException, ImageNotFound

from corral.errors import WorkerError
from corral.worker.container import connection, policy
from corral.worker.container.connection import (
    ENGINE_FAULTS,
    EngineConnection,
    GuardianProcess,
)
from corral.worker.container.container import RunningContainer, remove
from corral.worker.container.guardian import forget_folders
from corral.worker.container.job import ContainerJob, ContainerSettings
from corral.worker.container.output import ContainerStream
from corral.worker.container.request import (
    CALLER,
    MARK,
    OWNER,
    Traits,
    create_body,
    memory_of,
)
from corral.worker.isolation.process import OnOutput


class ContainerEngine:
    """One engine; safe to use from several threads. `close` removes what it started."""

    def __init__(
        self,
        host: str,
        settings: ContainerSettings,
        guard: GuardianProcess | None = None,
    ) -> None:
        self._settings = settings
        self._connection = EngineConnection(host, guard)
        self.traits = _look(self._connection.api)

    @property
    def host(self) -> str:
        return self._connection.host

    @property
    def owner(self) -> str:
        return self._connection.owner

    @property
    def podman(self) -> str:
        """The program, where its service is a child of ours."""
        return self._connection.podman

    @property
    def _api(self) -> Any:
        return self._connection.api

    def images(self) -> list[str]:
        """Names of the images on this node."""
        with _answering(self):
            tags = [image.get("RepoTags") or [] for image in self._api.images()]
        return sorted({tag for each in tags for tag in each})

    def start(self, job: ContainerJob, on_output: OnOutput) -> RunningContainer:
        """Start a container; its output goes to `on_output` from a thread of its own.

        Raises:
            WorkerError: why it cannot be started, on one line. Nothing is left then.
        """
        # What is not allowed is refused before anything is pulled.
        create_body(job, self._settings, self.traits, self.owner)
        for is_last in (False, True):
            try:
                with _answering(self):
                    self._connection.guarded()
                    return self._try(job, on_output)
            except _Unanswered:
                if is_last or not self._connection.renew():
                    raise
        raise AssertionError

    def _try(self, job: ContainerJob, on_output: OnOutput) -> RunningContainer:
        try:
            self._have_image(job.image)
            # Only now: a pull takes as long as a registry likes, and other jobs can
            # do what they like in volumes meanwhile.
            binds = policy.binds(job, self._settings)
            with contextlib.closing(policy.HeldFolders(binds)) as held:
                return self._start(job, binds, held, on_output)
        except APIError as error:
            argv = (*job.entrypoint, *job.argv)
            raise connection.of_start(job.image, argv, error) from error

    def sweep(self, mark_prefix: str) -> list[str]:
        """Remove containers that a dead predecessor left; their marks.

        Only what carries a mark with this prefix and is not this engine's own.
        """
        return self._sweep(mark_prefix, lambda labels: True)

    def sweep_dead(self, mark_prefix: str) -> list[str]:
        """The same, but only what was left by processes that are gone."""
        return self._sweep(mark_prefix, lambda labels: not _lives(labels.get(CALLER)))

    def _sweep(
        self, mark_prefix: str, is_left: Callable[[dict[str, str]], bool]
    ) -> list[str]:
        with _answering(self):
            found = self._api.containers(all=True, filters={"label": MARK})
        marks = []
        for container in found:
            labels = container.get("Labels") or {}
            mark, is_own = labels.get(MARK, ""), labels.get(OWNER) == self.owner
            if mark.startswith(mark_prefix) and not is_own and is_left(labels):
                remove(self._connection, container["Id"])
                forget_folders(labels.get(OWNER) or "-")
                marks.append(mark)
        return marks

    def close(self) -> None:
        self._connection.close()

    def _start(
        self,
        job: ContainerJob,
        binds: Sequence[policy.Bind],
        held: policy.HeldFolders,
        on_output: OnOutput,
    ) -> RunningContainer:
        settings = self._settings
        asked = create_body(job, settings, self.traits, self.owner, binds)
        # A name of ours: an engine that dies before it answers may have made it.
        name, stream = f"corral-{uuid.uuid4().hex}", None
        try:
            id_ = self._api.create_container(name=name, **asked)["Id"]
            # Before the start, so that no output is missed.
            streams = {"stdout": 1, "stderr": 1, "stream": 1}
            stream = ContainerStream(self._api.attach_socket(id_, params=streams))
            running = RunningContainer(
                self._connection,
                id_,
                stream,
                on_output,
                has_memory_limit=memory_of(job.limits, settings) is not None,
            )
            held.check_sources()
            running.begin()
            held.check_inside(running.pid)
        except BaseException:
            if stream is not None:
                stream.close()
            remove(self._connection, name)
            raise
        return running

    def _have_image(self, image: str) -> None:
        with contextlib.suppress(ImageNotFound):
            self._api.inspect_image(image)
            return
        if not self._settings.may_pull:
            raise connection.of_image(image, None)
        policy.check_registry(image, self._settings)
        # Without any the SDK takes those of the account we run as.
        login: dict[str, str] | None = None if self._settings.may_log_in else {}
        try:
            is_listed = bool(self._settings.registries)
            name, tag = _split(policy.with_registry(image) if is_listed else image)
            # Not as a stream: its faults would be of a library below the SDK.
            said = self._api.pull(name, tag=tag, auth_config=login)
            for line in said.splitlines():
                if "error" in (told := json.loads(line)):
                    raise DockerException(told["error"])
            self._api.inspect_image(image)
        except DockerException as error:
            raise connection.of_image(image, error) from error


def find(
    settings: ContainerSettings, sockets: Iterable[Path] | None = None
) -> ContainerEngine | None:
    """The engine that was named, or the first that answers; None without any.

    Args:
        settings: they may name one.
        sockets: where others listen, in this order; the usual places if not told.

    Raises:
        WorkerError: the one that was named cannot be used.
    """
    if settings.host:
        return _named(settings)
    for path in usual_sockets() if sockets is None else sockets:
        if path.is_socket():
            with contextlib.suppress(*ENGINE_FAULTS):
                return ContainerEngine(f"unix://{path}", settings)
    if podman := shutil.which("podman"):
        # Twice: what serves it may be killed before it was asked anything.
        with contextlib.suppress(_Unanswered):
            return _own(podman, settings)
        return _own(podman, settings)
    return None


def _own(podman: str, settings: ContainerSettings) -> ContainerEngine:
    owner, may_log_in = uuid.uuid4().hex, settings.may_log_in
    guard = GuardianProcess(owner, podman=podman, may_log_in=may_log_in)
    try:
        with _answering(guard):
            return ContainerEngine(guard.host, settings, guard)
    except BaseException:
        guard.close()
        raise


def _named(settings: ContainerSettings) -> ContainerEngine:
    host = settings.host
    if not host.startswith(("unix://", "npipe://")):
        raise WorkerError(
            f"{host!r} is no engine on this machine, and a job's folders cannot be "
            "mounted elsewhere: give unix:///path/to/socket"
        )
    try:
        return ContainerEngine(host, settings)
    except ENGINE_FAULTS as error:
        raise _Unanswered(host, error, is_own=False) from error


def usual_sockets() -> list[Path]:
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


def _lives(pid: str | None) -> bool:
    """Told by a label; what has none may be of a living process, too."""
    return pid is None or not pid.isdecimal() or psutil.pid_exists(int(pid))


class _Unanswered(WorkerError):
    """The engine was asked and gave no answer; one of our own was killed, then."""

    def __init__(self, host: str, error: BaseException, *, is_own: bool) -> None:
        said = connection.one_line(error)
        why = f"the container engine at {host} does not answer: {said}"
        super().__init__(why, lost=is_own)


@contextlib.contextmanager
def _answering(engine: ContainerEngine | GuardianProcess) -> Iterator[None]:
    try:
        yield
    except ENGINE_FAULTS as error:
        is_own = bool(engine.podman)
        raise _Unanswered(engine.host, error, is_own=is_own) from error

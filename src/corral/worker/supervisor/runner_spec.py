"""What a worker's runners are made of: the registry's entry, checked, and its code."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral.core.nodes.worker_type import WorkerCode
from corral.core.tasks.environment import (
    ArchiveEnvironment,
    ContainerEnvironment,
    GitEnvironment,
    from_plain,
)
from corral.worker.assignment import CodePolicy
from corral.worker.container.job import ContainerSettings
from corral.worker.manager_link import ManagerLink
from corral.worker.pool.transport import RunnerLaunch, RunnerSpec

if TYPE_CHECKING:
    from corral.worker.container.engine import ContainerEngine
    from corral.worker.environments.cache import Cache
    from corral.worker.environments.prepare import Prepared
    from corral.worker.isolation import NetworkPolicy

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSource:
    """The class that runners have, and where its code comes from.

    Either an entry of the registry, by its digest, or what the rest says.
    """

    worker_class: str
    params: dict[str, Any]
    environment: Mapping[str, Any] | None = None
    entry: str | None = None


class Recipe:
    """Makes the runners' spec; what it took for that is held until `close`."""

    def __init__(
        self,
        source: WorkerSource,
        link: ManagerLink,
        code: CodePolicy,
        containers: ContainerSettings,
        mark: str,
        *,
        is_sandboxed: bool = False,
    ) -> None:
        """`is_sandboxed`: the code is a user's, not the operator's."""
        self._is_sandboxed = is_sandboxed
        self._source = source
        self._link = link
        self._code = code
        self._containers = containers
        self._mark = mark
        self._engine: ContainerEngine | None = None
        self._prepared: Prepared | None = None

    @property
    def is_plain(self) -> bool:
        """Nothing to fetch: the class is what this machine has installed."""
        return self._source.entry is None and self._source.environment is None

    def make(self) -> RunnerSpec:
        """Fetch and build what is missing; may take minutes.

        Raises:
            CorralError: why that cannot be done now.
        """
        entry = self._read()
        if entry.environment is None:
            spec = RunnerSpec(entry.worker_class, entry.params)
            here = Path.cwd()
            log.info("classes are looked for in %s, too, after what is installed", here)
        elif isinstance(entry.environment, ContainerEnvironment):
            spec = self._in_image(entry, entry.environment)
        else:
            spec = self._prepare(entry, entry.environment)
        limits = (self._code.log_limit_bytes, self._code.model_room)
        return replace(spec, log_limit=limits[0], model_room=limits[1])

    def _read(self) -> WorkerCode:
        source, environment = self._source, self._source.environment
        if source.entry is not None:
            return WorkerCode.decode(self._link.get_object(source.entry))
        return WorkerCode(
            source.worker_class,
            source.params,
            from_plain(environment) if environment else None,
        )

    def _prepare(
        self, entry: WorkerCode, environment: GitEnvironment | ArchiveEnvironment
    ) -> RunnerSpec:
        # Most workers need none of it, and wait for nothing at their start.
        from corral.worker.environments.cache import Cache
        from corral.worker.environments.prepare import prepare
        from corral.worker.isolation import best_level

        code = self._code
        cache = Cache(Path(code.cache), code.limit_bytes)
        self._prepared = made = prepare(
            environment,
            cache=cache,
            fetch=self._link.get_object,
            fetch_code=self._link.get_code if self._is_sandboxed else None,
            policy=code.environments(
                self._link.url,
                # An operator's code runs without a sandbox: it may be built so, too.
                code.isolation if self._is_sandboxed else str(best_level()),
            ),
        )
        log.info("code is ready: %s", made.facts)
        return RunnerSpec(
            entry.worker_class,
            entry.params,
            python=made.python,
            folder=made.folder,
            variables=made.variables,
            launch=self._launch(cache, made) if self._is_sandboxed else None,
        )

    def _launch(self, cache: Cache, made: Prepared) -> RunnerLaunch:
        from corral.worker import isolation
        from corral.worker.pool.sandbox import SandboxLaunch

        level = isolation.level_for(self._code.isolation)
        hidden = tuple(map(Path, self._code.hidden))
        return SandboxLaunch(cache, made, self._mark, level, hidden, self._reach)

    @property
    def _reach(self) -> NetworkPolicy:
        from corral.worker.isolation import NetworkPolicy

        return NetworkPolicy(self._link.url, self._code.allows_host_network)

    def _in_image(self, entry: WorkerCode, image: ContainerEnvironment) -> RunnerSpec:
        from corral.worker.container.job import bound_gpus, bound_variables
        from corral.worker.container.runner import ContainerLaunch

        if self._engine is None:
            self._engine = self._containers.engine()
            self._engine.sweep(self._mark)
        network = self._containers.may_use_network
        launch = ContainerLaunch(
            self._engine,
            image,
            self._mark,
            gpus=bound_gpus(os.environ),
            network=network,
        )
        shown = bound_variables(os.environ)
        return RunnerSpec(
            entry.worker_class, entry.params, launch=launch, variables=shown
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Which code it came to be: the entry, and the commit or digest."""
        made = dict(self._prepared.facts) if self._prepared is not None else {}
        return {"entry": self._source.entry, **made}

    def close(self) -> None:
        if self._prepared is not None:
            self._prepared.close()
            self._prepared = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None

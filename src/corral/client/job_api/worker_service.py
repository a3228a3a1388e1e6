"""Workers launched or found by themselves, as code for the job API uses them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.client.job_api import launch
from corral.client.job_api.connection import SERVICE, Connection, Verb, reach
from corral.errors import InvalidField
from corral.wire import job_api as values

_ON_WORKER: Mapping[str, Verb] = {
    **SERVICE,
    "start": Verb(),
    "run": Verb(values.RunStatus),
    "connect_to_cluster": Verb(None, ("backend_args", "queue_name", "cluster_url"), 0),
    "get_status": Verb(values.LocalStatus),
}


class WorkerConnection(Connection):
    verbs = _ON_WORKER


def launch_worker(
    kind: type,
    params: Mapping[str, Any],
    *,
    url: str | None = None,
    host: str = "localhost",
    port: int | None = None,
    cluster_url: str | None = None,
    num_workers: int = 1,
    wait_for_launch: bool = True,
    timeout: float = 60.0,
    progress_bar: bool = True,
    block: bool = False,
    api_key: str | None = None,
) -> WorkerConnection:
    """Start a process with one worker of `kind` that belongs to a manager.

    Without a manager it waits for one; then nothing more is waited for here.
    """
    where = launch.address(url, host, port or launch.free_port())
    name, folder = _found_at(kind)
    spec = {
        "worker_class": name,
        "params": dict(params),
        "concurrency": num_workers,
        "url": where,
    }
    paths = [str(folder)] if folder else []
    process, has_manager = launch.launch_worker(spec, cluster_url, api_key, paths)
    if wait_for_launch and has_manager:
        process.wait(timeout, show=progress_bar)
    if block:
        process.running.wait()
    return WorkerConnection(where, None, process)


def connect_worker(url: str, timeout: float, api_key: str | None) -> WorkerConnection:
    """A connection to a worker that runs; Unreachable when nothing answers there."""
    client = launch.find_service(url, api_key, timeout)
    return WorkerConnection(url.rstrip("/"), reach(url, client))


def _found_at(kind: type) -> tuple[str, Path | None]:
    """`module:Class`, and the folder another process imports the module from."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    name = kind.__module__
    if "<locals>" in kind.__qualname__ or (name == "__main__" and file is None):
        raise InvalidField(
            f"{kind.__qualname__} must stand at the top of a file to be launched",
            field="worker_class",
        )
    if name == "__main__":
        spec = getattr(module, "__spec__", None)
        name = spec.name if spec is not None else Path(str(file)).stem
    if file is None:
        return f"{name}:{kind.__qualname__}", None
    path = Path(file).resolve()
    depth = name.count(".") + (path.name == "__init__.py")
    return f"{name}:{kind.__qualname__}", path.parents[depth]

"""A worker type that is a container image, on a real cluster and a real engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral import Client, ClusterManager, JobSchema, Node, job_from_schema
from corral.client.job_api.service import ClusterConnection, NodeConnection
from tests.acceptance.cluster import free_port, until
from tests.containers import engine, podman_files, python_image, settings

__all__ = ["engine", "podman_files", "python_image", "settings"]

Pair = tuple[ClusterConnection, NodeConnection]


@pytest.fixture(scope="module")
def cluster(
    python_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORRAL_HOME", str(tmp_path_factory.mktemp("image")))
        with (
            ClusterManager.launch(host="localhost", port=free_port()) as manager,
            Node.launch(port=free_port(), cluster_url=manager.url) as node,
        ):
            yield manager, node


@pytest.mark.spec("C65", "E6")
@pytest.mark.timeout(240)
def test_a_worker_from_an_image_does_jobs_inside_it(
    cluster: Pair, python_image: str
) -> None:
    manager, node = cluster
    manager.register_worker_type(
        worker_name="boxed",
        worker_class="corral.worker.builtin.EchoWorker",
        job_type="boxed_job",
        environment={"docker": {"image": python_image}},
    )
    launch = node.launch_worker(
        worker_type="boxed", worker_url=f"http://localhost:{free_port()}"
    )

    def ready() -> bool:
        told = node.launch_worker_status(launch_id=launch.launch_id)
        assert told.status != "failed", told.error
        return bool(told.status == "ready")

    until("the worker is ready", ready, 120)
    job = job_from_schema(JobSchema(name="boxed_job"), {"message": "inside"})
    manager.submit_job(job)

    def ended() -> Any:
        found = manager.get_job_status(job_id=job.id)
        return found if found.status not in ("queued", "running") else None

    found = until("the job ends", ended, 60)
    assert (found.status, found.output) == ("completed", {"echoed": "inside"})
    [folder] = Path(os.environ["CORRAL_HOME"]).glob("port-*")
    with Client(manager.url, home=folder) as client:
        until(
            "the worker says how it is kept apart",
            lambda: client.worker(launch.launch_id).isolation == "container",
            10,
        )
    node.shutdown_worker_by_id(worker_id=launch.launch_id)


@pytest.mark.timeout(240)
def test_an_image_that_is_not_there_fails_the_launch_with_its_name(
    cluster: Pair,
) -> None:
    manager, node = cluster
    manager.register_worker_type(
        worker_name="nowhere",
        worker_class="corral.worker.builtin.EchoWorker",
        environment={"docker": {"image": "localhost/nowhere:1"}},
    )
    launch = node.launch_worker(
        worker_type="nowhere", worker_url=f"http://localhost:{free_port()}"
    )

    def failed() -> Any:
        told = node.launch_worker_status(launch_id=launch.launch_id)
        return told if told.status == "failed" else None

    told = until("the launch fails", failed, 60)
    assert "localhost/nowhere:1" in told.error
    node.shutdown_worker_by_id(worker_id=launch.launch_id)

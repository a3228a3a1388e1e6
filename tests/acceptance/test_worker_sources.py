"""Workers whose code comes from Git or an uploaded folder, on a real cluster."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from corral import Client, ClusterManager, JobSchema, Node, job_from_schema
from corral.client.job_api.service import ClusterConnection, NodeConnection
from corral.worker.environments.cache import Cache
from tests.acceptance.cluster import free_port, until
from tests.contract.test_objects import ACCESS, BUCKET, SECRET, S3Server

PROJECT = """\
[project]
name = "far"
version = "1"
requires-python = ">=3.11"
dependencies = ["iniconfig"]
"""
WORKER = """\
import sys
from pathlib import Path
import iniconfig
from corral import Worker

class FarWorker(Worker):
    def run(self, payload):
        return {
            "said": payload["message"] + "%s",
            "iniconfig": iniconfig.__file__,
            "python": sys.prefix,
            "folder": str(Path.cwd()),
            "path": sys.path,
            "param": self.params.get("param"),
        }
"""


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


def write(folder: Path, mark: str) -> None:
    (folder / "sub").mkdir(parents=True, exist_ok=True)
    (folder / "sub" / "pyproject.toml").write_text(PROJECT)
    (folder / "sub" / "far_worker.py").write_text(WORKER % mark)


@pytest.fixture(scope="module", params=["folder", "s3"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ClusterConnection, NodeConnection]]:
    """With the registry in its data folder, and on an S3 server."""
    home = tmp_path_factory.mktemp("sources")
    server = S3Server(home / "s3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORRAL_HOME", str(home))
        patch.setenv("CORRAL_GIT_ALLOW_FILE", "true")
        if request.param == "s3":
            server.start()
            patch.setenv("CORRAL_OBJECT_STORE", f"s3://{BUCKET}/registry")
            patch.setenv("CORRAL_MINIO_ENDPOINT", f"localhost:{server.port}")
            patch.setenv("CORRAL_MINIO_ACCESS_KEY", ACCESS)
            patch.setenv("CORRAL_MINIO_SECRET_KEY", SECRET)
        try:
            with (
                ClusterManager.launch(host="localhost", port=free_port()) as manager,
                Node.launch(port=free_port(), cluster_url=manager.url) as node,
            ):
                yield manager, node
        finally:
            server.stop()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("far")
    git(folder, "init", "-q", "-b", "main")
    write(folder, "!")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def run_one(
    cluster: ClusterConnection, node: NodeConnection, kind: str, job_type: str
) -> tuple[Any, Any, float]:
    """Launch a worker of a type and let it do one job.

    Its output, what the worker says of its code, and how long it took to be ready.
    """
    began = time.monotonic()
    launch = node.launch_worker(
        worker_type=kind, worker_url=f"http://localhost:{free_port()}"
    )

    def look() -> bool:
        told = node.launch_worker_status(launch_id=launch.launch_id)
        assert told.status != "failed", told.error
        return bool(told.status == "ready")

    until(f"a worker of {kind}", look, 120)
    took = time.monotonic() - began
    job = job_from_schema(JobSchema(name=job_type), {"message": "hi"})
    cluster.submit_job(job)

    def ended() -> Any:
        found = cluster.get_job_status(job_id=job.id)
        return found if found.status not in ("queued", "running") else None

    found = until("the job ends", ended, 60)
    assert found.status == "completed", found.output
    with client_of(cluster) as client:
        code = client.worker(launch.launch_id).code
    node.shutdown_worker_by_id(worker_id=launch.launch_id)
    return found.output, code, took


def client_of(manager: ClusterConnection) -> Client:
    home = Path(os.environ["CORRAL_HOME"])
    return Client(manager.url, home=home / f"port-{urlsplit(manager.url).port}")


def counters() -> dict[str, int]:
    """What was cloned and built on the node so far, whoever asked for it."""
    [folder] = Path(os.environ["CORRAL_HOME"]).glob("nodes/*/agents/*/cache")
    return dict(Cache(folder, 1 << 30).counters())


@pytest.mark.spec("E5", "E17", "E21")
@pytest.mark.timeout(300)
def test_a_worker_from_git_runs_in_its_own_environment_and_is_built_once(
    cluster: tuple[ClusterConnection, NodeConnection], repository: Path
) -> None:
    manager, node = cluster
    manager.register_worker_type(
        worker_name="far",
        worker_class="far_worker.FarWorker",
        worker_params={"param": 7},
        job_type="far_job",
        git_repo_url=f"file://{repository}",
        git_branch="main",
        git_working_dir="sub",
        git_project="sub",
    )
    first, code, first_s = run_one(manager, node, "far", "far_job")
    assert code["commit"] == git(repository, "rev-parse", "HEAD")
    assert (code["cloned"], code["built"]) == (True, True)
    assert (first["said"], first["param"]) == ("hi!", 7)
    assert first["iniconfig"].startswith(first["python"])
    assert not any(
        "site-packages" in p and first["python"] not in p for p in first["path"]
    )
    before = counters()
    second, code, second_s = run_one(manager, node, "far", "far_job")
    assert (code["cloned"], code["built"]) == (False, False)
    after = counters()
    assert second["python"] == first["python"]
    assert second["folder"] != first["folder"]
    for name in ("clones", "builds"):
        assert before[name] == after[name] == 1
    later = [run_one(manager, node, "far", "far_job")[2] for _ in range(2)]
    assert statistics.median([second_s, *later]) < first_s


@pytest.mark.timeout(300)
def test_a_worker_from_a_folder_runs_what_was_sent(
    cluster: tuple[ClusterConnection, NodeConnection], tmp_path: Path
) -> None:
    manager, node = cluster
    write(tmp_path, "?")
    with client_of(manager) as client:
        digest = client.upload(tmp_path)
    manager.register_worker_type(
        worker_name="sent",
        worker_class="far_worker.FarWorker",
        job_type="sent_job",
        environment={
            "archive": {"digest": digest, "working_dir": "sub", "project": "sub"}
        },
    )
    output, _, _ = run_one(manager, node, "sent", "sent_job")
    assert output["said"] == "hi?"


@pytest.mark.timeout(240)
def test_a_repository_that_is_not_there_fails_the_launch_with_the_reason(
    cluster: tuple[ClusterConnection, NodeConnection], tmp_path: Path
) -> None:
    manager, node = cluster
    manager.register_worker_type(
        worker_name="lost",
        worker_class="far_worker.FarWorker",
        git_repo_url=f"file://{tmp_path}/nothing",
    )
    launch = node.launch_worker(
        worker_type="lost", worker_url=f"http://localhost:{free_port()}"
    )

    def failed() -> Any:
        told = node.launch_worker_status(launch_id=launch.launch_id)
        return told if told.status == "failed" else None

    told = until("the launch fails", failed)
    assert "nothing" in told.error
    assert "\n" not in told.error
    node.shutdown_worker_by_id(worker_id=launch.launch_id)


@pytest.mark.timeout(240)
def test_an_entry_whose_bytes_were_changed_is_not_run(
    cluster: tuple[ClusterConnection, NodeConnection],
) -> None:
    manager, node = cluster
    manager.register_worker_type(
        worker_name="honest", worker_class="corral.worker.builtin.EchoWorker"
    )
    with client_of(manager) as client:
        [kind] = [k for k in client.worker_types() if k.name == "honest"]
    assert kind.version == 1
    assert kind.digest is not None
    [file] = Path(os.environ["CORRAL_HOME"]).rglob(kind.digest)
    file.write_bytes(file.read_bytes().replace(b"EchoWorker", b"EvilWorker"))
    launch = node.launch_worker(
        worker_type="honest", worker_url=f"http://localhost:{free_port()}"
    )

    def failed() -> Any:
        told = node.launch_worker_status(launch_id=launch.launch_id)
        return told if told.status == "failed" else None

    told = until("the launch fails", failed)
    assert kind.digest in told.error
    node.shutdown_worker_by_id(worker_id=launch.launch_id)

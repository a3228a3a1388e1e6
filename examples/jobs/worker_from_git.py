"""A worker whose class lives in a Git repository, with dependencies of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corral import ClusterManager, JobSchema, Node, job_from_schema

PROJECT = """\
[project]
name = "shouting"
version = "1"
requires-python = ">=3.11"
dependencies = ["iniconfig"]
"""
WORKER = """\
import iniconfig
from corral import Worker

class ShoutWorker(Worker):
    def run(self, payload):
        return {"shouted": payload["message"].upper(), "has": iniconfig.__name__}
"""


def make_repository(folder: Path) -> str:
    """Stands for your own repository; any https or ssh URL will do."""
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "shouting.py").write_text(WORKER)
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    for words in (("init", "-qb", "main"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)
    return f"file://{folder}"


def main(manager_port: int = 8002, node_port: int = 8003) -> None:
    # Repositories on the node's own disk must be allowed; https needs nothing.
    os.environ["CORRAL_GIT_ALLOW_FILE"] = "true"
    with (
        tempfile.TemporaryDirectory() as folder,
        ClusterManager.launch(host="localhost", port=manager_port) as cluster,
        Node.launch(port=node_port, cluster_url=cluster.url) as node,
    ):
        cluster.register_worker_type(
            worker_name="shouter",
            worker_class="shouting.ShoutWorker",
            job_type="shout_job",
            git_repo_url=make_repository(Path(folder)),
            git_branch="main",
        )
        node.launch_worker(worker_type="shouter")
        job = job_from_schema(JobSchema(name="shout_job"), {"message": "hello"})
        status = cluster.submit_job(job)
        while status.status in ("queued", "running"):
            time.sleep(0.1)
            status = cluster.get_job_status(job_id=job.id)
        print(status.status, status.output)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

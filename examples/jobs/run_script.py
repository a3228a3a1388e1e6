"""A command as a job: it runs in a sandbox, in code from a Git repository."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corral import ClusterManager, JobSchema, Node, job_from_schema


def make_repository(folder: Path) -> str:
    """Stands for your own repository; any https or ssh URL will do."""
    (folder / "scripts").mkdir()
    (folder / "scripts" / "hello.py").write_text("print('hello from Git')\n")
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
            worker_name="scripts",
            worker_class="corral.RunScriptWorker",
            job_type="script_job",
        )
        node.launch_worker(worker_type="scripts")
        job = job_from_schema(
            JobSchema(name="script_job"),
            {
                "environment": {
                    "git": {
                        "repo_url": make_repository(Path(folder)),
                        "branch": "main",
                        "working_dir": "scripts",
                    }
                },
                "command": "python hello.py",
            },
        )
        status = cluster.submit_job(job)
        while status.status in ("queued", "running"):
            time.sleep(0.1)
            status = cluster.get_job_status(job_id=job.id)
        print(status.status, status.output.get("stdout", status.output))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""Two job types, each with a worker of its own: every job reaches the right one."""

from __future__ import annotations

import sys
import time
from typing import Any

from corral import ClusterManager, JobSchema, Node, job_from_schema

TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "echo_job": ("corral.worker.builtin.EchoWorker", {"message": "one"}),
    "sleep_job": ("corral.worker.builtin.SleepWorker", {"seconds": 0.1}),
}


def main(manager_port: int = 8002, node_port: int = 8003) -> None:
    with ClusterManager.launch(host="localhost", port=manager_port) as cluster:
        node = Node.launch(port=node_port, cluster_url=cluster.url)
        jobs = []
        for name, (worker_class, payload) in TYPES.items():
            cluster.register_worker_type(
                worker_name=f"for_{name}", worker_class=worker_class, job_type=name
            )
            node.launch_worker(worker_type=f"for_{name}")
            jobs.append(job_from_schema(JobSchema(name=name), payload))
        for job in jobs:
            cluster.submit_job(job)
        for job in jobs:
            status = cluster.get_job_status(job_id=job.id)
            while status.status in ("queued", "running"):
                time.sleep(0.1)
                status = cluster.get_job_status(job_id=job.id)
            print(job.schema_name, status.status, status.output)
        node.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

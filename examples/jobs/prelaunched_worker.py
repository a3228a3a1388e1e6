"""A worker that runs already is connected to a job type by its URL."""

from __future__ import annotations

import sys
import time

from corral import ClusterManager, JobSchema, Node, job_from_schema


def main(manager_port: int = 8002, node_port: int = 8003) -> None:
    with ClusterManager.launch(host="localhost", port=manager_port) as cluster:
        node = Node.launch(port=node_port, cluster_url=cluster.url)
        cluster.register_worker_type(
            worker_name="echo", worker_class="corral.worker.builtin.EchoWorker"
        )
        url = f"http://localhost:{node_port + 1}"
        launch = node.launch_worker(worker_type="echo", worker_url=url)
        while node.launch_worker_status(launch.launch_id).status != "ready":
            time.sleep(0.1)
        cluster.register_job_to_worker(job_type="late_job", worker_url=url)
        job = job_from_schema(JobSchema(name="late_job"), {"message": "connected"})
        status = cluster.submit_job(job)
        while status.status in ("queued", "running"):
            time.sleep(0.1)
            status = cluster.get_job_status(job_id=job.id)
        print(status.status, status.output)
        node.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""A job submitted before any worker exists waits, and runs when one is launched."""

from __future__ import annotations

import sys
import time

from corral import ClusterManager, JobSchema, Node, job_from_schema


def main(manager_port: int = 8002, node_port: int = 8003) -> None:
    with ClusterManager.launch(host="localhost", port=manager_port) as cluster:
        cluster.register_worker_type(
            worker_name="echo",
            worker_class="corral.worker.builtin.EchoWorker",
            worker_params={},
            job_type="echo_job",
        )
        job = job_from_schema(JobSchema(name="echo_job"), {"message": "patience"})
        print(cluster.submit_job(job).status)
        node = Node.launch(port=node_port, cluster_url=cluster.url)
        cluster.launch_worker(node_url=node.url, worker_type="echo")
        status = cluster.get_job_status(job_id=job.id)
        while status.status in ("queued", "running"):
            time.sleep(0.1)
            status = cluster.get_job_status(job_id=job.id)
        print(status.status, status.output)
        node.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""A manager, a node, a worker from a registered type, and one job."""

from __future__ import annotations

import sys
import time

from pydantic import BaseModel

from corral import ClusterManager, JobSchema, Node, job_from_schema


class EchoInput(BaseModel):
    message: str
    delay: float = 0.0


echo_job = JobSchema(name="echo_job", input_schema=EchoInput)


def main(manager_port: int = 8002, node_port: int = 8003) -> None:
    with ClusterManager.launch(host="localhost", port=manager_port) as cluster:
        node = Node.launch(port=node_port, cluster_url=cluster.url)
        cluster.register_worker_type(
            worker_name="echo",
            worker_class="corral.worker.builtin.EchoWorker",
            worker_params={},
            job_type="echo_job",
        )
        node.launch_worker(worker_type="echo")
        job = job_from_schema(echo_job, input_data={"message": "hello"})
        status = cluster.submit_job(job)
        while status.status in ("queued", "running"):
            time.sleep(0.1)
            status = cluster.get_job_status(job_id=job.id)
        print(status.status, status.output)
        node.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

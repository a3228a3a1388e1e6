"""A job that fails lies in the dead letters with its error, and can run again."""

from __future__ import annotations

import sys
import time

from corral import ClusterManager, JobSchema, Node, job_from_schema


def main(manager_port: int = 8002, node_port: int = 8003) -> None:
    with ClusterManager.launch(host="localhost", port=manager_port) as cluster:
        node = Node.launch(port=node_port, cluster_url=cluster.url)
        cluster.register_worker_type(
            worker_name="sleeper",
            worker_class="corral.worker.builtin.SleepWorker",
            job_type="sleep_job",
        )
        node.launch_worker(worker_type="sleeper")
        job = job_from_schema(JobSchema(name="sleep_job"), {"fail": "no luck today"})
        cluster.submit_job(job)
        while not cluster.get_dlq_jobs().jobs:
            time.sleep(0.1)
        dead = cluster.get_dlq_jobs().jobs[0]
        print(dead.output["error"])
        print(cluster.requeue_from_dlq(job_id=dead.job_id).status)
        node.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

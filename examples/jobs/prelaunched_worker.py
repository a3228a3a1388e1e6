"""A worker is launched by itself, and connected to a job type by its URL."""

from __future__ import annotations

import sys
import time

from corral import ClusterManager, EchoWorker, JobSchema, job_from_schema


def main(manager_port: int = 8002, worker_port: int = 8003) -> None:
    with (
        ClusterManager.launch(host="localhost", port=manager_port) as cluster,
        EchoWorker.launch(
            host="localhost", port=worker_port, cluster_url=cluster.url
        ) as worker,
    ):
        # By itself it serves no job type; a job can be given to it all the same.
        job = job_from_schema(JobSchema(name="echo"), {"message": "directly"})
        print(worker.run(job).output)
        cluster.register_job_to_worker(job_type="late_job", worker_url=worker.url)
        job = job_from_schema(JobSchema(name="late_job"), {"message": "connected"})
        status = cluster.submit_job(job)
        while status.status in ("queued", "running"):
            time.sleep(0.1)
            status = cluster.get_job_status(job_id=job.id)
        print(status.status, status.output)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

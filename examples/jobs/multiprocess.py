"""Two nodes with two workers each, all in processes of their own, share the jobs."""

from __future__ import annotations

import sys
import time

from corral import ClusterManager, JobSchema, Node, job_from_schema


def main(manager_port: int = 8002, node_port: int = 8003) -> None:
    with (
        ClusterManager.launch(host="localhost", port=manager_port) as cluster,
        Node.launch(port=node_port, cluster_url=cluster.url) as one,
        Node.launch(port=node_port + 1, cluster_url=cluster.url) as two,
    ):
        cluster.register_worker_type(
            worker_name="sleeper",
            worker_class="corral.worker.builtin.SleepWorker",
            job_type="nap",
        )
        launches = [
            (node, node.launch_worker(worker_type="sleeper").launch_id)
            for node in (one, two, one, two)
        ]
        for node, launch_id in launches:
            while node.launch_worker_status(launch_id=launch_id).status != "ready":
                time.sleep(0.1)
        nap = JobSchema(name="nap")
        jobs = [job_from_schema(nap, {"seconds": 0.5}) for _ in range(8)]
        for job in jobs:
            cluster.submit_job(job)
        states = [cluster.get_job_status(job_id=job.id) for job in jobs]
        while any(state.status in ("queued", "running") for state in states):
            time.sleep(0.1)
            states = [cluster.get_job_status(job_id=job.id) for job in jobs]
        workers = {state.worker_id for state in states}
        print(f"{len(jobs)} jobs ran on {len(workers)} workers")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

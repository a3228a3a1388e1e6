"""A node in a process of its own, found by its URL from another program."""

from __future__ import annotations

import subprocess
import sys
import time

from corral import ClusterManager, JobSchema, Node, job_from_schema

NODE = """
import sys
from corral import Node
node = Node.launch(port=int(sys.argv[1]), cluster_url=sys.argv[2])
print("up", flush=True)
sys.stdin.read()  # The node ends with this program.
"""


def main(manager_port: int = 8002, node_port: int = 8003) -> None:
    with ClusterManager.launch(host="localhost", port=manager_port) as cluster:
        command = [sys.executable, "-c", NODE, str(node_port), cluster.url]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
            assert other.stdout is not None
            other.stdout.readline()
            node = Node.connect(f"http://localhost:{node_port}")
            cluster.register_worker_type(
                worker_name="echo",
                worker_class="corral.worker.builtin.EchoWorker",
                job_type="echo_job",
            )
            node.launch_worker(worker_type="echo")
            job = job_from_schema(JobSchema(name="echo_job"), {"message": "from afar"})
            status = cluster.submit_job(job)
            while status.status in ("queued", "running"):
                time.sleep(0.1)
                status = cluster.get_job_status(job_id=job.id)
            print(node.class_name().class_name, status.status, status.output)
            node.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

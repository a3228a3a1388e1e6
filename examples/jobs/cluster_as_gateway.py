"""The manager as a gateway: jobs of one type go straight to an HTTP service."""

from __future__ import annotations

import http.server
import json
import sys
import threading

from corral import ClusterManager, JobSchema, job_from_schema


class Service(http.server.BaseHTTPRequestHandler):
    """Any HTTP service that answers JSON will do."""

    def do_POST(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"echoed": job["message"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_words: object) -> None:
        """Say nothing of each request."""


def main(manager_port: int = 8097, service_port: int = 8098) -> None:
    service = http.server.ThreadingHTTPServer(("127.0.0.1", service_port), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    with ClusterManager.launch(host="localhost", port=manager_port) as gateway:
        gateway.register_app(name="echo", url=f"http://127.0.0.1:{service_port}")
        gateway.register_job_to_endpoint(job_type="echo_job", endpoint="echo/run")
        job = job_from_schema(JobSchema(name="echo_job"), {"message": "Hello"})
        status = gateway.submit_job(job)
        print(status.status, status.output, status.worker_id)
    service.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

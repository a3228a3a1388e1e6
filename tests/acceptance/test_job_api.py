"""The job API on a real cluster: code written for it runs as it is."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import psutil
import pytest
from pydantic import BaseModel

from corral import ClusterManager, JobSchema, Node, job_from_schema
from corral.client.job_api.service import ClusterConnection, NodeConnection
from corral.errors import Conflict, InvalidField, TaskNotFound, WorkerNotFound
from tests.acceptance.cluster import Cluster, free_port, took_s, typical_s, until

ECHO = "corral.worker.builtin.EchoWorker"
SLEEP = "corral.worker.builtin.SleepWorker"


class EchoInput(BaseModel):
    message: str
    delay: float = 0.0


ECHO_JOB = JobSchema(name="echo_job", input_schema=EchoInput)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = str(tmp_path_factory.mktemp("jobs"))
    former = os.environ.get("CORRAL_HOME")
    os.environ["CORRAL_HOME"] = folder
    os.environ["MINDTRACE_CLUSTER__WORKER_PORTS_RANGE"] = "18092-18094"
    yield folder
    del os.environ["MINDTRACE_CLUSTER__WORKER_PORTS_RANGE"]
    if former is None:
        del os.environ["CORRAL_HOME"]
    else:
        os.environ["CORRAL_HOME"] = former


@pytest.fixture(scope="module")
def cluster(home: str) -> Iterator[ClusterConnection]:
    with ClusterManager.launch(host="localhost", port=free_port()) as connection:
        yield connection


@pytest.fixture(scope="module")
def node(cluster: ClusterConnection) -> Iterator[NodeConnection]:
    connection = Node.launch(port=free_port(), cluster_url=cluster.url)
    yield connection
    connection.shutdown()


def launched(
    cluster: ClusterConnection,
    node: NodeConnection,
    kind: str,
    *,
    is_any_port: bool = False,
) -> str:
    """The id of a ready worker of a registered type."""
    url = None if is_any_port else f"http://localhost:{free_port()}"
    launch = node.launch_worker(worker_type=kind, worker_url=url)
    status = node.launch_worker_status
    until(kind, lambda: status(launch.launch_id).status == "ready")
    return str(launch.launch_id)


def ended(cluster: ClusterConnection, job_id: str) -> Any:
    def look() -> Any:
        found = cluster.get_job_status(job_id=job_id)
        return found if found.status in ("completed", "failed", "error") else None

    return until(f"job {job_id} ends", look)


@pytest.mark.spec("E3", "E8", "E16", "E18", "E19")
def test_a_job_submitted_before_any_worker_exists_runs_when_one_is_launched(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    cluster.register_worker_type(
        worker_name="early", worker_class=ECHO, worker_params={}, job_type="echo_job"
    )
    job = job_from_schema(ECHO_JOB, input_data={"message": "hello"})
    assert cluster.submit_job(job).status == "queued"
    launched(cluster, node, "early")
    status = ended(cluster, job.id)
    assert (status.status, status.output) == ("completed", {"echoed": "hello"})
    assert status.job["payload"] == {"message": "hello", "delay": 0.0}


def test_input_that_does_not_fit_the_schema_makes_no_job() -> None:
    with pytest.raises(InvalidField, match="message"):
        job_from_schema(ECHO_JOB, input_data={"mesage": "x"})


@pytest.mark.spec("E25", "E28", "E38")
def test_plain_http_without_optional_keys_is_enough(
    cluster: ClusterConnection,
) -> None:
    told = post(cluster, "submit_job", {"schema_name": "no_such_job"})
    assert told["status"] == "error"
    words = "No job schema targeting found for job type no_such_job"
    assert told["output"] == {"error": words}
    assert post(cluster, "get_worker_status", {"worker_id": "x"}) == {
        "worker_id": "x",
        "worker_type": "",
        "worker_url": "",
        "job_id": None,
        "status": "nonexistent",
        "last_heartbeat": None,
    }
    access = post(cluster, "register_node", {"node_url": "http://localhost:1"})
    assert access["secret_key"] == access["rabbitmq_password"] == ""
    assert "submit_job" in post(cluster, "endpoints", {})["endpoints"]
    assert post(cluster, "status", {}) == {"status": "Available"}
    assert post(cluster, "heartbeat", {})["heartbeat"]["status"] == "Available"
    assert post(cluster, "class_name", {}) == {"class_name": "ClusterManager"}
    assert post(cluster, "pid_file", {}) == {"pid_file": None}
    with pytest.raises(TaskNotFound):
        cluster.get_job_status(job_id="not-there")


def post(cluster: ClusterConnection, name: str, body: dict[str, Any]) -> Any:
    port = cluster.url.rpartition(":")[2]
    folder = os.path.join(os.environ["CORRAL_HOME"], f"port-{port}")
    with open(os.path.join(folder, "admin.key")) as file:
        headers = {"Authorization": f"Bearer {file.read().strip()}"}
    answer = httpx.post(f"{cluster.url}/{name}", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return json.loads(answer.content)


@pytest.mark.spec("E2", "E7", "E31", "E32")
def test_worker_status_follows_a_running_job(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    cluster.register_worker_type(
        worker_name="napper", worker_class=SLEEP, job_type="nap"
    )
    worker_id = launched(cluster, node, "napper")

    def sees(*seen: str | None) -> None:
        ask = partial(cluster.query_worker_status, worker_id=worker_id)
        until(f"{seen}", lambda: ((told := ask()).status, told.job_id) == seen)

    def followed_s() -> float:
        """How late the worse of its begin and its end is seen."""
        job = job_from_schema(JobSchema(name="nap"), {"seconds": 3})
        cluster.submit_job(job)
        begins_s = took_s(lambda: sees("running", job.id))
        assert ended(cluster, job.id).status == "completed"
        return max(begins_s, took_s(lambda: sees("idle", None)))

    assert typical_s(followed_s) < 0.5


@pytest.mark.spec("E40")
def test_a_job_whose_worker_is_killed_runs_again(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    cluster.register_worker_type(worker_name="mortal", worker_class=SLEEP)
    cluster.register_job_schema_to_worker_type(
        job_schema_name="mortal_job", worker_type="mortal"
    )
    worker_id = launched(cluster, node, "mortal")
    job = job_from_schema(JobSchema(name="mortal_job"), {"seconds": 1.5})
    cluster.submit_job(job)
    until(
        "it runs",
        lambda: cluster.get_job_status(job_id=job.id).status == "running",
    )
    with_pid = cluster._client.worker(worker_id).pid
    assert with_pid is not None
    for child in psutil.Process(with_pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    os.kill(with_pid, signal.SIGKILL)
    assert ended(cluster, job.id).status == "completed"


def test_a_failing_job_lies_in_the_dlq_and_runs_again_under_its_id(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    cluster.register_worker_type(
        worker_name="failing", worker_class=SLEEP, job_type="fail"
    )
    launched(cluster, node, "failing")
    job = job_from_schema(JobSchema(name="fail"), {"fail": "on purpose"})
    cluster.submit_job(job)
    status = ended(cluster, job.id)
    assert status.status == "failed"
    dead = {d.job_id: d for d in cluster.get_dlq_jobs().jobs}
    assert "on purpose" in dead[job.id].output["error"]
    assert "RuntimeError" in dead[job.id].output["traceback"]
    assert cluster.requeue_from_dlq(job_id=job.id).status == "queued"
    assert ended(cluster, job.id).status == "failed"
    cluster.discard_from_dlq(job_id=job.id)
    assert job.id not in {d.job_id for d in cluster.get_dlq_jobs().jobs}


def test_a_running_worker_can_be_connected_to_another_job_type(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    cluster.register_worker_type(worker_name="loose", worker_class=ECHO)
    url = f"http://localhost:{free_port()}"
    launch = node.launch_worker(worker_type="loose", worker_url=url)
    until(
        "it is ready",
        lambda: node.launch_worker_status(launch.launch_id).status == "ready",
        30,
    )
    cluster.register_job_to_worker(job_type="late_job", worker_url=url)
    job = job_from_schema(JobSchema(name="late_job"), {"message": "now"})
    cluster.submit_job(job)
    assert ended(cluster, job.id).output == {"echoed": "now"}
    assert cluster.get_worker_status_by_url(worker_url=url).worker_type == "loose"


@pytest.mark.spec("E30")
@pytest.mark.timeout(240)
def test_two_types_launched_at_the_same_moment_each_get_their_own_jobs(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "twin_echo": (ECHO, {"message": "hi"}),
        "twin_nap": (SLEEP, {"seconds": 0}),
    }
    for name, (worker_class, _) in kinds.items():
        cluster.register_worker_type(
            worker_name=name, worker_class=worker_class, job_type=f"{name}_job"
        )
    expected = {"twin_echo": {"echoed": "hi"}, "twin_nap": {"slept": 0.0}}
    for _ in range(20):
        with ThreadPoolExecutor(2) as both:
            ids = list(both.map(partial(launched, cluster, node), kinds))
        jobs = {
            name: job_from_schema(JobSchema(name=f"{name}_job"), payload)
            for name, (_, payload) in kinds.items()
        }
        for job in jobs.values():
            cluster.submit_job(job)
        for (name, job), worker_id in zip(jobs.items(), ids, strict=True):
            done = ended(cluster, job.id)
            assert (done.status, done.output) == ("completed", expected[name])
            assert done.worker_id == worker_id
        node.shutdown_all_workers()


@pytest.mark.spec("E1", "E20", "E26")
def test_a_job_type_can_go_straight_to_an_endpoint(
    cluster: ClusterConnection,
) -> None:
    with serving() as url:
        cluster.register_app(name="upper", url=url)
        cluster.register_job_to_endpoint(job_type="upper_job", endpoint="upper/run")
        job = job_from_schema(JobSchema(name="upper_job"), {"text": "quiet"})
        status = cluster.submit_job(job)
    assert (status.status, status.output) == ("completed", {"text": "QUIET"})
    assert status.worker_id == "upper/run"


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """A small HTTP service of somebody's own."""

    class Upper(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            text = json.loads(body)["text"].upper()
            answer = json.dumps({"status": "completed", "output": {"text": text}})
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_words: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upper)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_fourth_launch_on_three_ports_fails_and_a_dead_ones_port_is_used_again(
    cluster: ClusterConnection,
) -> None:
    node = Node.launch(port=free_port(), cluster_url=cluster.url)
    cluster.register_worker_type(worker_name="crowd", worker_class=ECHO)
    first = [launched(cluster, node, "crowd", is_any_port=True) for _ in range(3)]
    fourth = node.launch_worker_status(node.launch_worker("crowd").launch_id)
    assert fourth.status == "failed"
    assert "no free port" in (fourth.error or "")
    urls = {node.launch_worker_status(i).worker_url for i in first}
    assert len(urls) == 3
    cluster._client.stop_worker(first[0])
    again = node.launch_worker_status(
        launched(cluster, node, "crowd", is_any_port=True)
    )
    assert again.worker_url in urls
    node.shutdown()


def test_workers_of_a_node_are_stopped_by_name_id_port_or_all(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    other = Node.launch(port=free_port(), cluster_url=cluster.url)
    cluster.register_worker_type(worker_name="brief", worker_class=ECHO)

    def start(name: str) -> tuple[str, int]:
        port = free_port()
        url = f"http://localhost:{port}"
        launch = other.launch_worker("brief", worker_url=url, worker_name=name)
        return launch.launch_id, port

    kept = node.launch_worker("brief", worker_url=f"http://localhost:{free_port()}")
    ids = [start(name) for name in ("one", "two", "three", "four")]
    other.shutdown_worker("one")
    other.shutdown_worker_by_id(ids[1][0])
    other.shutdown_worker_by_port(ids[2][1])
    assert [seen(cluster, i) for i, _ in ids[:3]] == ["nonexistent"] * 3
    other.shutdown_all_workers()
    assert seen(cluster, ids[3][0]) == "nonexistent"
    with pytest.raises(WorkerNotFound):
        other.shutdown_worker("one")
    assert kept.launch_id in {w.worker_id for w in cluster._client.workers()}
    node.shutdown_worker_by_id(kept.launch_id)
    other.shutdown()


def seen(cluster: ClusterConnection, worker_id: str) -> str:
    status: str = cluster.get_worker_status(worker_id=worker_id).status
    return status


def test_an_alert_ends_a_job_that_runs_and_refuses_one_that_waits(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    cluster.register_worker_type(
        worker_name="outside", worker_class=SLEEP, job_type="outside_job"
    )
    job = job_from_schema(JobSchema(name="outside_job"), {"seconds": 30})
    cluster.submit_job(job)
    told = {"job_id": job.id, "worker_id": "mine", "status": "completed"}
    with pytest.raises(Conflict):
        cluster.worker_alert_completed_job(**told, output={"by": "hand"})
    worker_id = launched(cluster, node, "outside")
    until("it runs", lambda: cluster.get_job_status(job_id=job.id).status == "running")
    cluster.worker_alert_started_job(job_id=job.id, worker_id="mine")
    cluster.worker_alert_completed_job(**told, output={"by": "hand"})
    assert ended(cluster, job.id).output == {"by": "hand"}
    node.shutdown_worker_by_id(worker_id)


def test_clearing_a_queue_cancels_what_waits(cluster: ClusterConnection) -> None:
    cluster.register_worker_type(
        worker_name="idle", worker_class=ECHO, job_type="never_served"
    )
    job = job_from_schema(JobSchema(name="never_served"), {"message": "x"})
    assert cluster.submit_job(job).status == "queued"
    cluster.clear_job_schema_queue(job_schema_name="never_served")
    assert cluster.get_job_status(job_id=job.id).status == "failed"


def test_worker_types_are_named_listed_and_forgotten_on_the_command_line(
    shared: Cluster,
) -> None:
    added = shared.corral("worker-type", "add", "mine", ECHO, "--job-type", "mine_job")
    assert added.code == 0, added.err
    listed = json.loads(shared.corral("worker-type", "list", "--json").out)
    row = next(kind for kind in listed if kind["name"] == "mine")
    assert (row["worker_class"], row["job_type"]) == (ECHO, "mine_job")
    assert shared.corral("worker-type", "remove", "mine").code == 0
    again = shared.corral("worker-type", "remove", "mine")
    assert (again.code, len(again.err.strip().splitlines())) == (1, 1)


async def test_every_call_has_an_asynchronous_twin(
    cluster: ClusterConnection,
) -> None:
    found = await cluster.aget_worker_status(worker_id="nobody")
    assert found.status == "nonexistent"

"""Nodes and workers under URLs of their own: ports, keys, and jobs for one worker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import pytest

from corral import (
    ClusterManager,
    EchoWorker,
    JobSchema,
    Node,
    SleepWorker,
    job_from_schema,
)
from corral.client.job_api.connection import Connection
from corral.client.job_api.service import ClusterConnection, NodeConnection
from corral.client.job_api.worker_service import WorkerConnection
from corral.errors import (
    AlreadyRunning,
    Conflict,
    Forbidden,
    InvalidField,
    Unauthenticated,
    Unreachable,
)
from tests.acceptance.cluster import ROOT, clean_environment, free_port, until

ECHO = "corral.worker.builtin.EchoWorker"
C = TypeVar("C", bound=Connection)
SLEEP = "corral.worker.builtin.SleepWorker"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("faces")
    former = os.environ.get("CORRAL_HOME")
    os.environ["CORRAL_HOME"] = str(folder)
    os.environ["CORRAL_FAILED_AUTH_PER_MIN"] = "1000"
    yield folder
    del os.environ["CORRAL_FAILED_AUTH_PER_MIN"]
    if former is None:
        del os.environ["CORRAL_HOME"]
    else:
        os.environ["CORRAL_HOME"] = former


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[ClusterConnection]:
    with ClusterManager.launch(port=free_port(), progress_bar=False) as connection:
        for kind, name in ((ECHO, "echo"), (SLEEP, "sleep")):
            connection.register_worker_type(worker_name=name, worker_class=kind)
        yield connection


@pytest.fixture(scope="module")
def node(cluster: ClusterConnection) -> Iterator[NodeConnection]:
    ports = [free_port() for _ in range(6)]
    # Without a cluster_url it joins the manager this process launched.
    with Node.launch(port=free_port(), worker_ports=ports) as connection:
        yield connection


@pytest.fixture(scope="module")
def echo(cluster: ClusterConnection) -> Iterator[WorkerConnection]:
    with EchoWorker.launch(port=free_port()) as connection:
        yield connection


_kept: list[Connection] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Connections a test made are let go of after it."""
    yield
    while _kept:
        _kept.pop().close()


def keep(connection: C) -> C:
    _kept.append(connection)
    return connection


def key_of(cluster: ClusterConnection, home: Path) -> str:
    port = cluster.url.rpartition(":")[2]
    return (home / f"port-{port}" / "admin.key").read_text().strip()


def post(url: str, name: str, key: str | None, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.post(f"{url}/{name}", json=body, headers=headers, timeout=60)


def worker_of(node: NodeConnection, kind: str) -> WorkerConnection:
    """A ready worker of a type on a node, on a port of its range."""
    launch_id = node.launch_worker(worker_type=kind).launch_id

    def url() -> str | None:
        seen = node.launch_worker_status(launch_id=launch_id)
        assert seen.status != "failed", seen.error
        found: str | None = seen.worker_url if seen.status == "ready" else None
        return found

    return keep(EchoWorker.connect(until(f"a worker of {kind}", url)))


def refusal(answer: httpx.Response, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    assert set(error) == {"code", "message", "details", "request_id", "timestamp"}


def test_ports_answer_on_loopback_alone_and_the_manager_judges_every_key(
    cluster: ClusterConnection,
    node: NodeConnection,
    echo: WorkerConnection,
    home: Path,
) -> None:
    weak = cluster._client.join_token().token
    for service, change in ((node, "shutdown_all_workers"), (echo, "shutdown")):
        port = int(service.url.rpartition(":")[2])
        heard = [c for c in psutil.net_connections() if c.status == psutil.CONN_LISTEN]
        listening = {c.laddr.ip for c in heard if c.laddr and c.laddr.port == port}
        assert listening == {"127.0.0.1"}
        for name in ("endpoints", "status", "heartbeat", change):
            refusal(post(service.url, name, None), 401, "unauthenticated")
            refusal(post(service.url, name, "corral_no_key"), 401, "unauthenticated")
            refusal(post(service.url, name, weak), 403, "forbidden")
        assert post(service.url, "status", key_of(cluster, home)).is_success
        refusal(post(service.url, "nonsense", weak), 404, "not_found")
        refusal(httpx.get(f"{service.url}/status"), 405, "method_not_allowed")
    assert node.status().status == echo.status().status == "Available"


def test_a_key_that_is_wrong_or_weak_raises_as_it_does_at_the_manager(
    cluster: ClusterConnection, echo: WorkerConnection
) -> None:
    with pytest.raises(Unauthenticated) as refused:
        EchoWorker.connect(echo.url, api_key="corral_no_key")
    assert refused.value.status == 401
    with pytest.raises(Forbidden):
        Node.connect(echo.url, api_key=cluster._client.join_token().token)
    with pytest.raises(Unreachable) as nobody:
        Node.connect(f"http://localhost:{free_port()}", timeout=0.1)
    assert nobody.value.status == 503


def test_launching_where_something_answers_is_refused(
    cluster: ClusterConnection, node: NodeConnection, echo: WorkerConnection
) -> None:
    for taken in (cluster.url, node.url, echo.url):
        for service in (ClusterManager, Node, EchoWorker):
            with pytest.raises(AlreadyRunning) as refused:
                service.launch(url=taken)
            assert refused.value.status == 400
    with pytest.raises(InvalidField):
        EchoWorker.launch(url="https://localhost:1")


@pytest.mark.spec("E34", "E36")
def test_a_job_given_to_a_worker_runs_there_and_is_a_task_like_any_other(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    workers = [worker_of(node, "echo"), worker_of(node, "echo")]
    ids = [w.get_status().worker_id for w in workers]
    assert ids[0] != ids[1]
    of_no_type = JobSchema(name="of_no_type")
    jobs = [job_from_schema(of_no_type, {"message": ids[n % 2]}) for n in range(6)]
    for number, job in enumerate(jobs):
        worker, worker_id = workers[number % 2], ids[number % 2]
        done = worker.run(job)
        assert (done.status, done.output) == ("completed", {"echoed": worker_id})
        stored = cluster.get_job_status(job_id=job.id)
        assert (stored.status, stored.worker_id) == ("completed", worker_id)
    failed = workers[0].run({"schema_name": "of_no_type", "payload": {"mesage": 1}})
    assert failed.status == "failed"
    assert "message" in failed.output["error"]
    assert cluster._client.get_task(jobs[1].id).worker_id == ids[1]
    stolen = {"id": jobs[1].id, "schema_name": "of_no_type"}
    with pytest.raises(Conflict):
        workers[0].run(stolen)
    node.shutdown_all_workers()


def test_a_job_whose_one_worker_is_stopped_fails_instead_of_waiting_for_ever(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    worker = worker_of(node, "sleep")
    worker_id = worker.get_status().worker_id
    job = {"id": f"only-{worker_id}", "schema_name": "nap", "payload": {"seconds": 3}}

    async def both() -> Any:
        running = asyncio.create_task(worker.arun(job))
        await asyncio.to_thread(
            until,
            "the worker says that it runs",
            lambda: worker.get_status().job_id == job["id"],
        )
        assert worker.get_status().status == "running"
        await node.ashutdown_worker_by_id(worker_id)
        return await running

    done = asyncio.run(both())
    assert done.status == "failed"
    assert "has been stopped" in done.output["error"]
    until("its port is free", lambda: not answers(worker.url))


def answers(url: str) -> bool:
    try:
        httpx.post(f"{url}/status")
    except httpx.TransportError:
        return False
    return True


@pytest.mark.spec("E27", "E35")
def test_a_worker_launched_by_itself_serves_a_type_once_it_is_connected(
    cluster: ClusterConnection, echo: WorkerConnection
) -> None:
    row = cluster.get_worker_status_by_url(worker_url=echo.url)
    assert row.status == "idle"
    assert cluster._client.worker(row.worker_id).job_types == []
    cluster.register_job_to_worker(job_type="late_job", worker_url=echo.url)
    assert ran(cluster, "late_job", {"message": "x"}) == {"echoed": "x"}
    args = {"cls": "some.Backend", "kwargs": {"host": "elsewhere"}}
    echo.connect_to_cluster(
        backend_args=args, queue_name="later_job", cluster_url=cluster.url
    )
    assert ran(cluster, "later_job", {"message": "y"}) == {"echoed": "y"}
    with pytest.raises(Conflict):
        echo.connect_to_cluster(queue_name="x", cluster_url="http://10.0.0.1:8002")


def ran(cluster: ClusterConnection, job_type: str, payload: Any) -> Any:
    job = job_from_schema(JobSchema(name=job_type), payload)
    cluster.submit_job(job)
    task = cluster._client.wait(job.id, timeout=60)
    assert task.status == "completed", task
    return task.result


def test_a_worker_of_a_class_of_the_users_own_gets_its_parameters(
    cluster: ClusterConnection,
) -> None:
    from tests.acceptance.own_workers import Greeter

    with Greeter.launch(port=free_port(), greeting="Salut") as worker:
        done = worker.run(schema_name="greet", payload={"name": "Ada"})
        assert done.output == {"said": "Salut, Ada"}
        assert worker.class_name().class_name == "Greeter"
        plain = worker.get_status(validate_output=False, timeout=5)
        assert plain["status"] == "idle"
    assert not answers(worker.url)


def test_a_worker_launched_before_its_manager_waits_for_it(home: Path) -> None:
    port = free_port()
    with EchoWorker.launch(
        port=free_port(), cluster_url=f"http://localhost:{port}", timeout=5
    ) as worker:
        assert worker._process is not None
        assert not worker._process.is_over
        with ClusterManager.launch(port=port) as cluster:
            # Nobody has heard of that worker yet: the wish is kept.
            cluster.register_job_to_worker(job_type="early", worker_url=worker.url)
            assert ran(cluster, "early", {"message": "z"}) == {"echoed": "z"}


def test_a_taken_port_fails_the_launch_with_its_reason(
    cluster: ClusterConnection, node: NodeConnection
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        url = f"http://localhost:{stranger.getsockname()[1]}"
        launch_id = node.launch_worker(worker_type="echo", worker_url=url).launch_id
        failed = until(
            "the launch fails",
            lambda: (
                (s := node.launch_worker_status(launch_id)).status == "failed" and s
            ),
        )
        assert "cannot open the port" in failed.error
    node.shutdown_worker_by_id(launch_id)


def test_the_manager_shows_its_own_workers_a_token_and_callers_keys_stay_here(
    cluster: ClusterConnection, echo: WorkerConnection, home: Path
) -> None:
    key = key_of(cluster, home)
    cluster.register_app(name="own", url=echo.url)
    job = {"schema_name": "free", "payload": {"message": "through"}}
    told = post(f"{cluster.url}/own", "run", key, **job)
    assert told.json() == {"status": "completed", "output": {"echoed": "through"}}
    assert post(f"{cluster.url}/own", "get_status", key).json()["status"] == "idle"
    assert post(f"{cluster.url}/own", "status", key).json() == {"status": "Available"}
    # The token opens no more than that, and the caller's own key did not travel.
    refusal(post(f"{cluster.url}/own", "shutdown", key), 401, "unauthenticated")
    cluster.register_job_to_endpoint(job_type="own_job", endpoint="own/run")
    direct = cluster.submit_job(
        job_from_schema(JobSchema(name="own_job"), {"message": "job"})
    )
    assert (direct.status, direct.output) == ("completed", {"echoed": "job"})
    assert direct.worker_id == "own/run"


def test_a_node_shut_down_from_afar_ends_with_its_workers(
    cluster: ClusterConnection,
) -> None:
    here = keep(Node.launch(port=free_port(), worker_ports=[free_port()]))
    worker = worker_of(here, "echo")
    assert here._process is not None
    Node.connect(here.url).shutdown()
    assert here._process.running.wait(60) == 0
    assert not answers(worker.url)
    until(
        "the manager knows",
        lambda: cluster.get_worker_status_by_url(worker.url).status == "nonexistent",
    )


def test_a_worker_shut_down_from_afar_takes_its_own_node_along(
    cluster: ClusterConnection,
) -> None:
    here = keep(SleepWorker.launch(port=free_port()))
    assert here._process is not None
    SleepWorker.connect(here.url).shutdown()
    assert here._process.running.wait(60) == 0


LAUNCHES = """
import sys, threading
from corral import ClusterManager, EchoWorker, Node
port, node_port, worker_port = map(int, sys.argv[1:])
kept = []
# From a thread that ends: the process counts, not the thread.
starter = threading.Thread(
    target=lambda: kept.append(ClusterManager.launch(port=port))
)
starter.start()
starter.join()
kept.append(Node.launch(port=node_port, cluster_url=kept[0].url))
kept.append(EchoWorker.launch(port=worker_port, cluster_url=kept[0].url))
print(*(c._process.running.pid for c in kept), flush=True)
sys.stdin.read()
"""


def test_what_was_launched_ends_with_its_parent_even_when_that_is_killed(
    tmp_path: Path,
) -> None:
    ports = [free_port() for _ in range(3)]
    parent = subprocess.Popen(
        [sys.executable, "-c", LAUNCHES, *map(str, ports)],
        env=clean_environment(CORRAL_HOME=str(tmp_path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    with parent.stdout, parent.stdin:
        roots = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(roots) == 3
        family = [p for root in roots for p in (root, *root.children(recursive=True))]
        assert len(family) > 8
        parent.send_signal(signal.SIGKILL)
        parent.wait(60)
    until("all have ended", lambda: not any(map(lives, family)))
    assert not any(answers(f"http://localhost:{port}") for port in ports)


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

"""Every endpoint of the job API by plain HTTP, on manager, node and worker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import httpx
import pytest

from corral import ClusterManager, EchoWorker, Node
from corral.client.job_api.service import ClusterConnection, NodeConnection
from corral.client.job_api.worker_service import WorkerConnection
from tests.acceptance.cluster import free_port, until

ECHO = "corral.worker.builtin.EchoWorker"
SLEEP = "corral.worker.builtin.SleepWorker"
SERVICE = "endpoints status heartbeat server_id class_name pid_file shutdown mcp"
MANAGER = """submit_job register_job_to_endpoint register_job_to_worker
register_job_schema_to_worker_type register_worker_type launch_worker
launch_worker_status get_job_status get_worker_status get_worker_status_by_url
query_worker_status query_worker_status_by_url worker_alert_started_job
worker_alert_completed_job register_node get_dlq_jobs requeue_from_dlq
discard_from_dlq clear_databases clear_job_schema_queue register_app"""
NODE = """launch_worker launch_worker_status shutdown_worker shutdown_worker_by_id
shutdown_worker_by_port shutdown_all_workers"""
WORKER = "start run connect_to_cluster get_status"
WANTED = {"manager": MANAGER, "node": NODE, "worker": WORKER}

JOB_STATUS = {"job_id", "worker_id", "status", "output", "job"}
WORKER_STATUS = {
    "worker_id",
    "worker_type",
    "worker_url",
    "job_id",
    "status",
    "last_heartbeat",
}
LAUNCH = {"launch_id", "status", "worker_id", "worker_name", "worker_url", "error"}
ACCESS = {"endpoint", "access_key", "secret_key", "bucket", "minio_port"}
ACCESS |= {f"rabbitmq_{name}" for name in ("host", "port", "username", "password")}
MCP = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@dataclass(frozen=True)
class Row:
    """A call: what it must have, what it may have, and what its answer looks like.

    `keys` are those of the answer, None for null; `has` are values in it.
    """

    service: str
    name: str
    body: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    keys: set[str] | None = None
    has: dict[str, Any] = field(default_factory=dict)
    path: str = ""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [self.body, {**self.body, **self.more}] if self.more else [self.body]


def manager(name: str, *args: Any, **more: Any) -> Row:
    return Row("manager", name, *args, **more)


def node(name: str, *args: Any, **more: Any) -> Row:
    return Row("node", name, *args, **more)


def worker(name: str, *args: Any, **more: Any) -> Row:
    return Row("worker", name, *args, **more)


def about(service: str, class_name: str) -> list[Row]:
    return [
        Row(service, "endpoints", keys={"endpoints"}),
        Row(service, "status", keys={"status"}, has={"status": "Available"}),
        Row(service, "heartbeat", keys={"heartbeat"}),
        Row(service, "server_id", keys={"server_id"}),
        Row(service, "class_name", keys={"class_name"}, has={"class_name": class_name}),
        Row(service, "pid_file", keys={"pid_file"}),
        Row(
            service, "mcp", MCP, keys={"jsonrpc", "id", "result"}, path="mcp-server/mcp"
        ),
    ]


NOBODY = {"worker_id": "nobody"}
ABSENT = {"status": "nonexistent", "job_id": None}
JOB = {"schema_name": "echo_job", "payload": {"message": "hi"}}
WHOLE_JOB = {
    "id": "whole-$n",
    "name": "mine",
    "status": "queued",
    "created_at": "2026-01-01T00:00:00+00:00",
    "started_at": None,
    "completed_at": None,
    "error": None,
    "entrypoint": "main",
    "priority": 3,
}
NO_TYPE = {"error": "No job schema targeting found for job type unheard_of"}
TYPE = {"worker_name": "tabled", "worker_class": ECHO, "worker_params": {}}
BACKEND = {"cls": "any.Backend", "kwargs": {"host": "nowhere"}}

ROWS = [
    *about("manager", "ClusterManager"),
    *about("node", "Node"),
    *about("worker", "EchoWorker"),
    manager("submit_job", JOB, WHOLE_JOB, JOB_STATUS, {"status": "queued"}),
    manager(
        "submit_job",
        {"schema_name": "unheard_of"},
        {"payload": {}},
        JOB_STATUS,
        {"status": "error", "output": NO_TYPE},
    ),
    manager("get_job_status", {"job_id": "$done"}, {}, JOB_STATUS),
    manager("register_worker_type", TYPE, {"materializer_name": None}),
    manager("register_worker_type", TYPE, {"job_type": "tabled_job"}),
    manager(
        "register_job_schema_to_worker_type",
        {"job_schema_name": "tabled_two", "worker_type": "tabled"},
    ),
    manager(
        "register_job_to_worker", {"job_type": "by_url", "worker_url": "$worker_url"}
    ),
    manager("register_app", {"name": "app", "url": "http://127.0.0.1:9"}),
    manager("register_job_to_endpoint", {"job_type": "direct", "endpoint": "app/run"}),
    manager(
        "launch_worker",
        {"node_url": "$node_url", "worker_type": "echo"},
        {"worker_name": "named", "worker_url": "http://localhost:$port"},
        {"launch_id"},
    ),
    manager(
        "launch_worker_status",
        {"launch_id": "$launch_id"},
        {"node_url": "$node_url"},
        LAUNCH,
        {"status": "ready"},
    ),
    *(
        manager(f"{verb}_worker_status{by}", {key: value}, {}, WORKER_STATUS, has)
        for verb in ("get", "query")
        for by, key, value, has in (
            ("", "worker_id", "$worker_id", {"status": "idle"}),
            ("", "worker_id", "nobody", ABSENT),
            ("_by_url", "worker_url", "$worker_url", {"worker_id": "$worker_id"}),
            ("_by_url", "worker_url", "http://nowhere:1", ABSENT),
        )
    ),
    manager("worker_alert_started_job", {"job_id": "$napping", **NOBODY}),
    manager(
        "worker_alert_completed_job",
        {"job_id": "$napping", "status": "completed", "output": {}, **NOBODY},
    ),
    manager("register_node", {"node_url": "$node_url"}, {}, ACCESS, {"secret_key": ""}),
    manager("get_dlq_jobs", keys={"jobs"}),
    manager("requeue_from_dlq", {"job_id": "$dead_one"}, {}, JOB_STATUS),
    manager("discard_from_dlq", {"job_id": "$dead_two"}),
    manager("clear_job_schema_queue", {"job_schema_name": "echo_job"}),
    node(
        "launch_worker",
        {"worker_type": "echo"},
        {
            "worker_name": "other",
            "worker_url": "http://localhost:$port",
            "auto_connect_job_type": "auto",
        },
        {"launch_id"},
    ),
    node("launch_worker_status", {"launch_id": "$launch_id"}, {}, LAUNCH),
    node("shutdown_worker", {"worker_name": "victim-$n"}),
    node("shutdown_worker_by_id", {"worker_id": "$victim"}),
    node("shutdown_worker_by_port", {"worker_port": "$port_of_victim"}),
    node("shutdown_all_workers"),
    worker("start"),
    worker(
        "run",
        JOB,
        WHOLE_JOB,
        {"status", "output"},
        {"status": "completed", "output": {"echoed": "hi"}},
    ),
    worker(
        "connect_to_cluster",
        {"queue_name": "queue"},
        {"backend_args": BACKEND, "cluster_url": "$cluster_url"},
    ),
    worker("get_status", keys={"worker_id", "status", "job_id"}, has={"job_id": None}),
    manager("clear_databases"),
    worker("shutdown", keys={"shutdown"}, has={"shutdown": True}),
    node("shutdown", keys={"shutdown"}, has={"shutdown": True}),
    manager("shutdown", keys={"shutdown"}, has={"shutdown": True}),
]


@dataclass
class World:
    """A manager, a node with a worker, and a worker by itself."""

    cluster: ClusterConnection
    on: NodeConnection
    alone: WorkerConnection
    key: str
    known: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def url(self, service: str) -> str:
        places = {"manager": self.cluster, "node": self.on, "worker": self.alone}
        return places[service].url

    def post(self, service: str, path: str, body: Any, key: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{self.url(service)}/{path}"
        return httpx.post(url, json=body, headers=headers, timeout=60)

    def tell(self, service: str, path: str, **body: Any) -> Any:
        answer = self.post(service, path, body, self.key)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def fill(self, value: Any) -> Any:
        """The value with what is known; the port of a victim as a number."""
        text = Template(json.dumps(value)).safe_substitute(self.known)
        port = self.known["port_of_victim"]
        return json.loads(text.replace(f'"{port}"', str(port)))

    def renew(self) -> None:
        """Ports, names and a worker to stop that no call has used yet."""
        self.number += 1
        self.known |= {"n": self.number, "port": free_port()}

    def victim(self) -> None:
        port, name = free_port(), f"victim-{self.number}"
        url = f"http://localhost:{port}"
        wanted = {"worker_type": "echo", "worker_name": name, "worker_url": url}
        told = self.tell("node", "launch_worker", **wanted)
        self.known |= {"victim": told["launch_id"], "port_of_victim": port}


def started(world: World) -> World:
    """Everything the rows name is there: jobs done, dead and under way."""
    tell = world.tell
    for kind, name, job in ((ECHO, "echo", "echo_job"), (SLEEP, "sleep", "nap")):
        tell(
            "manager",
            "register_worker_type",
            worker_name=name,
            worker_class=kind,
            job_type=job,
        )
        launch_id = tell("node", "launch_worker", worker_type=name)["launch_id"]
        world.known.setdefault("launch_id", launch_id)

    def status(job_id: str) -> str:
        return str(tell("manager", "get_job_status", job_id=job_id)["status"])

    naps = {"dead_one": {"fail": "x"}, "dead_two": {"fail": "y"}, "done": {}}
    for name, payload in {**naps, "napping": {"seconds": 600}}.items():
        nap = {"id": name, "schema_name": "nap", "payload": payload}
        tell("manager", "submit_job", **nap)
        world.known[name] = name
    until("the last one runs", lambda: status("napping") == "running", 60)
    launch = {"launch_id": world.known["launch_id"]}
    until(
        "the worker is ready",
        lambda: tell("node", "launch_worker_status", **launch)["status"] == "ready",
    )
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("endpoints")
    former, os.environ["CORRAL_HOME"] = os.environ.get("CORRAL_HOME"), str(home)
    os.environ["CORRAL_FAILED_AUTH_PER_MIN"] = "1000"
    port = free_port()
    cluster = ClusterManager.launch(port=port)
    on = Node.launch(port=free_port(), worker_ports=[free_port() for _ in range(9)])
    alone = EchoWorker.launch(port=free_port())
    key = Path(home, f"port-{port}", "admin.key").read_text().strip()
    made = World(cluster, on, alone, key)
    made.known |= {
        "node_url": on.url,
        "worker_url": alone.url,
        "worker_id": alone.get_status().worker_id,
        "cluster_url": cluster.url,
        "port_of_victim": 0,
    }
    try:
        yield started(made)
    finally:
        for service in (alone, on, cluster):
            service.shutdown()
        del os.environ["CORRAL_HOME"], os.environ["CORRAL_FAILED_AUTH_PER_MIN"]
        if former is not None:
            os.environ["CORRAL_HOME"] = former


def test_the_table_names_every_endpoint_of_each_service() -> None:
    for service, names in WANTED.items():
        listed = {row.name for row in ROWS if row.service == service}
        assert listed == {*names.split(), *SERVICE.split()}


@pytest.mark.spec("E29", "E33", "E38")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.service}-{row.name}")
def test_the_endpoint_answers_as_described(row: Row, world: World) -> None:
    for body in row.bodies:
        world.renew()
        if "victim" in json.dumps(body):
            world.victim()
        path = row.path or row.name
        assert world.post(row.service, path, {}, "no-key").status_code == 401
        answer = world.post(row.service, path, world.fill(body), world.key)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        if row.keys is None:
            assert told is None
            continue
        assert set(told) == row.keys
        assert {key: told[key] for key in row.has} == world.fill(row.has)

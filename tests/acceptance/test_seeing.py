"""A cluster seen from outside: one id through all its logs, traces, Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral.settings import Settings
from tests.acceptance.cluster import ROOT, Cluster, clean_environment, free_port, until
from tests.trace_collector import Collector, Seen, trace_collector

WORKER = "tests.acceptance.own_workers:RequestWorker=request"
REQUEST_ID = "order-4711.a"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
DEPLOY = ROOT / "deploy"
Event = dict[str, Any]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with trace_collector() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, collector: Collector
) -> Iterator[Cluster]:
    home, port = tmp_path_factory.mktemp("seeing"), free_port()
    started = Cluster.start(
        home,
        [WORKER],
        port=port,
        is_port_flag=False,
        CLUSTER_MANAGER_HOST="127.0.0.1",
        CLUSTER_MANAGER_PORT=str(port),
        DEBUG="true",
        HEARTBEAT_INTERVAL="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
    )
    try:
        started.serving("request")
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def http(cluster: Cluster) -> Iterator[httpx.Client]:
    key = (cluster.home / "admin.key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=cluster.url, headers=headers, timeout=70) as client:
        yield client


def run(http: httpx.Client, payload: Any = None, **headers: str) -> httpx.Response:
    task = {"task_type": "request", "parameters": payload or {}}
    answer = http.post("/tasks", params={"wait": 60}, json=task, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "completed", answer.text
    return answer


def events(path: Path, request_id: str) -> dict[str, Event]:
    """What a log says of a request, by the name of the event."""
    lines = path.read_text(encoding="utf-8").splitlines()
    said = [json.loads(line) for line in lines if line.startswith("{")]
    return {e["event"]: e for e in said if e.get("request_id") == request_id}


def follow(path: Path, request_id: str, *names: str) -> dict[str, Event]:
    def found() -> dict[str, Event] | None:
        told = events(path, request_id)
        return told if told.keys() >= set(names) else None

    told: dict[str, Event] = until(f"{names} in {path.name}", found)
    return told


@pytest.mark.spec("C44", "D18", "D24")
def test_one_id_is_followed_from_the_request_to_manager_worker_and_job(
    cluster: Cluster, http: httpx.Client
) -> None:
    given = {"X-Request-ID": REQUEST_ID, "traceparent": PARENT}
    answer = run(http, **given)
    task = answer.json()
    assert answer.headers["x-request-id"] == task["request_id"] == REQUEST_ID
    assert task["result"]["request_id"] == REQUEST_ID
    assert task["result"]["traceparent"].split("-")[1] == TRACE_ID
    manager = follow(
        cluster.home / "logs" / "manager.log",
        REQUEST_ID,
        *("http_request", "task_submitted", "task_scheduled", "task_ended"),
    )
    assert manager["http_request"]["path"] == "/tasks"
    scheduled = manager["task_scheduled"]
    assert scheduled["task_id"] == task["task_id"]
    assert scheduled["worker_id"] == task["worker_id"]
    assert "estimated_duration" in scheduled
    assert manager["task_ended"]["status"] == "completed"
    worker = follow(
        cluster.home / "logs" / "worker.log",
        REQUEST_ID,
        *("task_received", "task_finished"),
    )
    assert http.get("/cluster/status").json()["active_workers"] == 1
    workers = http.get("/workers").json()["workers"]
    assert [row["worker_id"] for row in workers] == [task["worker_id"]]
    for event in worker.values():
        assert event["task_id"] == task["task_id"]
        assert event["worker_id"] == task["worker_id"]
    lines = [line.text for line in cluster.client.logs(task["task_id"])]
    assert lines == [f"at work for {REQUEST_ID}"]
    found = http.get("/tasks", params={"request_id": REQUEST_ID}).json()["tasks"]
    assert [row["task_id"] for row in found] == [task["task_id"]]
    listed = cluster.corral("tasks", "--request", REQUEST_ID, "--json")
    assert [row["task_id"] for row in json.loads(listed.out)] == [task["task_id"]]


@pytest.mark.spec("A18")
def test_the_manager_is_where_its_variables_say_and_as_talkative(
    cluster: Cluster, http: httpx.Client
) -> None:
    assert cluster.state()["url"] == f"http://127.0.0.1:{cluster.port}"
    name = {"X-Request-ID": "are-you-there"}
    assert http.get("/health", headers=name).json()["status"] == "healthy"
    told = follow(cluster.home / "logs" / "manager.log", *name.values(), "http_request")
    assert told["http_request"]["level"] == "debug"
    assert Settings.model_fields["port"].default == 8002


def test_an_id_is_made_where_none_is_given_or_it_makes_no_sense(
    cluster: Cluster, http: httpx.Client
) -> None:
    made = run(http, **{"X-Request-ID": "no good\tid"}).json()["request_id"]
    assert re.fullmatch(r"[0-9a-f]{32}", made)
    traced = run(http, traceparent=PARENT).json()
    assert traced["request_id"] == TRACE_ID
    follow(cluster.home / "logs" / "worker.log", made, "task_finished")


@pytest.mark.spec("C44")
def test_what_a_task_submits_has_its_request_id_and_hangs_in_its_trace(
    cluster: Cluster, http: httpx.Client, collector: Collector
) -> None:
    key = (cluster.home / "admin.key").read_text().strip()
    trace_id = "7" * 32
    given = {"X-Request-ID": "family-1", "traceparent": f"00-{trace_id}-{'8' * 16}-01"}
    parent = run(http, {"next": [cluster.url, key]}, **given).json()
    child = cluster.client.wait(parent["result"]["next"], 60)
    assert child.request_id == parent["request_id"] == "family-1"

    def spans() -> dict[tuple[str, str], Seen] | None:
        seen = [s for s in list(collector.spans) if s.trace_id == trace_id]
        found = {(s.facts["corral.task_id"], s.name): s for s in seen}
        names = [name for _, name in found]
        return found if names.count("task request") == 2 else None

    found = until("both tasks in one trace", spans)
    begun_by = found[parent["task_id"], "run"]
    assert found[child.task_id, "task request"].parent_id == begun_by.id
    both = http.get("/tasks", params={"request_id": "family-1"}).json()["tasks"]
    assert {row["task_id"] for row in both} == {parent["task_id"], child.task_id}


@pytest.mark.spec("C46")
def test_a_task_is_one_trace_that_its_worker_can_go_on_with(
    http: httpx.Client, collector: Collector
) -> None:
    trace_id, caller = "5" * 32, "6" * 16
    task = run(http, traceparent=f"00-{trace_id}-{caller}-01").json()

    def whole() -> dict[str, Seen] | None:
        seen = {s.name: s for s in list(collector.spans) if s.trace_id == trace_id}
        return seen if "task request" in seen else None

    spans: dict[str, Seen] = until("the trace", whole)
    root, queue, ran = spans["task request"], spans["queue"], spans["run"]
    assert task["result"]["traceparent"] == f"00-{trace_id}-{ran.id}-01"
    assert (root.parent_id, queue.parent_id, ran.parent_id) == (
        caller,
        root.id,
        root.id,
    )
    assert root.begin <= queue.begin <= queue.end <= ran.begin <= ran.end <= root.end
    assert root.facts["corral.task_id"] == task["task_id"]
    assert ran.facts["corral.worker_id"] == task["worker_id"]


def test_no_log_holds_a_key_or_a_password(cluster: Cluster, http: httpx.Client) -> None:
    run(http, **{"X-Request-ID": "before-the-look"})
    follow(cluster.home / "logs" / "worker.log", "before-the-look", "task_finished")
    secrets = [(cluster.home / "admin.key").read_text().strip()]
    for path in cluster.home.rglob("*"):
        if path.is_file() and path.suffix in (".key", ".secret"):
            secrets.append(path.read_text().strip())
    logs = [*cluster.home.rglob("*.log")]
    assert {"manager.log", "agent.log", "worker.log"} <= {p.name for p in logs}
    for path in logs:
        said = path.read_text(encoding="utf-8", errors="replace")
        assert not [name for name in secrets if len(name) > 7 and name in said], path
        assert not re.search(r"://[^/\s:@]*:(?!\*{8}@)[^/\s@\"]+@", said), path


def promtool(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None or shutil.which("prometheus") is None:
        pytest.skip("promtool and prometheus are missing: 'make system' installs them")
    return subprocess.run(
        ["promtool", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_promtool_has_nothing_to_say_against_metrics_and_rules(
    http: httpx.Client, tmp_path: Path
) -> None:
    run(http)
    told = http.get("/metrics").text
    measured = re.findall(r'corral_store_seconds_count{connection="(\w+)"} [1-9]', told)
    assert {"submits", "reports", "pool"} <= set(measured)
    checked = promtool("check", "metrics", stdin=told)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(DEPLOY / "prometheus" / name, tmp_path)
    (tmp_path / "corral.key").write_text("corral_x_y")
    checked = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert checked.returncode == 0, checked.stderr


@pytest.fixture
def prometheus(cluster: Cluster, http: httpx.Client, tmp_path: Path) -> Iterator[str]:
    """One that reads the cluster as deploy/ says, only more often."""
    promtool("--version")
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    text = text.replace("localhost:8002", f"127.0.0.1:{cluster.port}")
    (tmp_path / "prometheus.yml").write_text(re.sub(r"\b15s", "1s", text))
    shutil.copy(DEPLOY / "prometheus" / "alerts.yml", tmp_path)
    key = http.post("/keys", json={"name": "prometheus", "role": "read"}).json()["key"]
    (tmp_path / "corral.key").write_text(key)
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={tmp_path / 'data'}"]
    command += [f"--web.listen-address={address}", "--log.level=warn"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(command, stderr=log, env=clean_environment())
    try:
        yield f"http://{address}/api/v1"
    finally:
        server.kill()
        server.wait(60)


def ask(api: str, path: str, **query: str) -> Any:
    """The data of an answer; None while nothing answers yet."""
    try:
        answer = httpx.get(f"{api}{path}", params=query, timeout=10)
    except httpx.TransportError:
        return None
    if answer.status_code == 503:
        return None
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def test_a_real_prometheus_reads_the_manager_and_evaluates_rules_and_dashboard(
    http: httpx.Client, prometheus: str
) -> None:
    run(http)

    def completed() -> bool:
        found = ask(prometheus, "/query", query='tasks_total{status="completed"}')
        return bool(found) and any(float(r["value"][1]) > 0 for r in found["result"])

    until("Prometheus has seen a completed task", completed)

    def rules() -> list[Event]:
        groups = (ask(prometheus, "/rules") or {}).get("groups", [])
        found = [rule for group in groups for rule in group["rules"]]
        is_done = found and all(rule["health"] != "unknown" for rule in found)
        return found if is_done else []

    evaluated = until("all rules are evaluated", rules)
    assert {rule["health"] for rule in evaluated} == {"ok"}
    board = (DEPLOY / "grafana" / "corral.json").read_text()
    for panel in json.loads(board)["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "1m")
            until(query, partial(ask, prometheus, "/query", query=query))


@pytest.mark.spec("C33")
def test_a_node_is_looked_at_as_often_as_the_documented_variable_says(
    http: httpx.Client,
) -> None:
    (node,) = http.get("/nodes").json()["nodes"]
    path = f"/nodes/{node['node_id']}/metrics"

    def readings() -> int:
        told = http.get(path, params={"from": "-30s", "step": 1}).json()
        return sum(v is not None for v in told["series"]["cpu_percent"]["average"])

    # At the default, every 30 seconds, there would never be more than two.
    until("four readings within half a minute", lambda: readings() >= 4)
    assert Settings.model_fields["heartbeat_interval_s"].default == 30.0


def test_a_log_that_has_grown_long_is_set_aside_and_is_written_on(
    cluster: Cluster, http: httpx.Client
) -> None:
    log = cluster.home / "logs" / "manager.log"
    with log.open("a", encoding="utf-8") as file:
        file.write("x" * (10 << 20) + "\n")
    former = log.with_name("manager.log.1")
    until("it is set aside", lambda: former.exists() and log.stat().st_size < 1 << 20)
    http.get("/health", headers={"X-Request-ID": "after-the-cut"})
    follow(log, "after-the-cut", "http_request")
    assert "task_scheduled" in former.read_text(encoding="utf-8")

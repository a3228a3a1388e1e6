"""A machine dies, and the cluster says so: alerts, health, events that are followed."""

from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.wire.events import AlertInfo
from tests.acceptance.cluster import CORRAL, ECHO, Cluster, until
from tests.unit.client.stand_in import StandIn, serve


@pytest.fixture(scope="module")
def receiver() -> Iterator[StandIn]:
    with serve() as made:
        made.on("POST /hook", "thanks")
        yield made


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, receiver: StandIn
) -> Iterator[Cluster]:
    started = Cluster.start(
        tmp_path_factory.mktemp("alerts"),
        [ECHO],
        CORRAL_BEAT_S="0.5",
        CORRAL_SUSPECT_AFTER_S="3",
        CORRAL_LOST_AFTER_S="5",
        CORRAL_HEARTBEAT_INTERVAL_S="1",
        CORRAL_ALERT_AFTER_S="1",
        CORRAL_ALERT_DISK_PERCENT="1",
        CORRAL_ALERT_WEBHOOKS=f"{receiver.url}/hook",
    )
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def followed(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """What `corral events --follow` prints, from here on."""
    path = tmp_path / "events.jsonl"
    command = [*CORRAL, "--url", cluster.url, "events", "-f", "-n", "1", "--json"]
    with path.open("wb") as out:
        process = subprocess.Popen(command, env=cluster.environment, stdout=out)
    try:
        until("it follows", lambda: path.read_text())
        yield path
    finally:
        process.terminate()
        process.wait(60)


def lost(cluster: Cluster, *, is_open: bool = True) -> AlertInfo | None:
    rows = cluster.client.alerts(is_open=is_open)
    return next((a for a in rows if a.rule == "node_lost"), None)


def told(path: Path) -> list[int]:
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line)["seq"] for line in lines if line.endswith("\n")]


@pytest.mark.spec("A7", "A21", "C47", "D20")
def test_a_node_that_dies_is_an_alert_until_it_is_back(
    cluster: Cluster, receiver: StandIn, followed: Path
) -> None:
    client = cluster.client
    agent = cluster.join("two", [ECHO])
    cluster.serving("echo", 2)
    agent.kill_all()
    alert = until("the alert", lambda: lost(cluster))
    health = client.cluster_health()
    assert health.status in ("degraded", "critical")
    assert alert.id in [reason.alert_id for reason in health.reasons]
    assert client.cluster_status().health == health.status
    ack = cluster.corral("alerts", "ack", str(alert.id), "--note", "I go and look")
    assert ack.code == 0, ack.err
    cluster.kill("manager")
    until("the manager is back", lambda: lost(cluster))
    again = lost(cluster)
    assert again is not None
    assert (again.id, again.note) == (alert.id, "I go and look")
    listed = cluster.corral("alerts")
    assert "acknowledged" in listed.out
    cluster.join("two", [ECHO])
    until("the alert is over", lambda: lost(cluster) is None)
    ended = lost(cluster, is_open=False)
    assert ended is not None
    assert (ended.id, ended.status) == (alert.id, "resolved")
    _check_webhooks(cluster, receiver, alert.id)
    _check_followed(cluster, followed)


def _check_webhooks(cluster: Cluster, receiver: StandIn, alert_id: int) -> None:
    def heard() -> list[str]:
        mine = [c for c in receiver.seen if c.json["alert"]["id"] == alert_id]
        return list(dict.fromkeys(c.json["event"] for c in mine))

    until("both are told", lambda: heard() == ["alert_raised", "alert_resolved"])
    secret = cluster.client.webhook_secret()
    call = receiver.seen[-1]
    mine = hmac.new(secret.encode(), call.body, hashlib.sha256).hexdigest()
    assert call.headers["x-corral-signature"] == f"sha256={mine}"


def _check_followed(cluster: Cluster, followed: Path) -> None:
    """Everything came once and in order, although the manager was killed meanwhile."""
    first = told(followed)[0]
    events, after = [first], first
    while page := cluster.client.events(after=after, limit=1000).events:
        events += [event.seq for event in page]
        after = events[-1]
    until("all were followed", lambda: told(followed)[-1] >= after)
    seen = told(followed)
    assert seen[: len(events)] == events


def test_a_disk_that_fills_up_is_an_alert(cluster: Cluster) -> None:
    def full() -> bool:
        return any(a.rule == "node_disk" for a in cluster.client.alerts())

    until("the alert", full)
    out = cluster.corral("events", "--type", "alert", "--severity", "warning").out
    assert "disk" in out

"""Files in and out of scripts on a real cluster: artifacts, checkpoints, folders."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral.errors import NotFound
from corral.wire.tasks import TaskDetail
from tests.acceptance.cluster import Cluster, until
from tests.contract.test_objects import ACCESS, BUCKET, SECRET, S3Server

SCRIPTS = "corral.worker.script.worker:RunScriptWorker=run_script"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("files")
    started = Cluster.start(home, [SCRIPTS], CORRAL_CHECKPOINT_S="1")
    try:
        started.serving("run_script")
        yield started
    finally:
        started.stop()


def run(cluster: Cluster, text: str, **more: Any) -> TaskDetail:
    """A shell script, run to its end."""
    options = {k: more.pop(k) for k in ("timeout", "retries") if k in more}
    payload = {"command": ["sh", "-c", text], **more}
    sent = cluster.client.submit("run_script", payload, **options)
    return cluster.client.wait(sent.task_id, 90)


@pytest.mark.timeout(300)
def test_files_left_by_a_script_are_listed_and_fetched(
    cluster: Cluster, tmp_path: Path
) -> None:
    ended = run(
        cluster,
        "cd $CORRAL_ARTIFACTS; mkdir -p deep/er; printf hello > deep/er/out.txt; "
        "head -c 20000000 /dev/urandom > weights.bin; ln -s weights.bin latest; "
        "ln -s /etc/passwd stolen; mkfifo pipe; : > empty; "
        "cd -; echo kept > model.pt; echo lost > other",
        artifacts=["*.pt"],
    )
    assert ended.is_completed, ended.error
    names = [a["name"] for a in ended.result["artifacts"]]
    assert sorted(names) == ["deep/er/out.txt", "empty", "latest", "model.pt",
                             "weights.bin"]  # fmt: skip
    assert "stolen" in ended.result["left_out"]
    assert "pipe" in ended.result["left_out"]
    assert "\n" not in ended.result["left_out"]

    told = cluster.corral("artifacts", "list", ended.task_id, "--json")
    listed = json.loads(told.out)
    assert [a["name"] for a in listed["artifacts"]] == sorted(names)
    assert "stolen" in listed["left_out"]
    to = tmp_path / "here"
    done = cluster.corral("artifacts", "get", ended.task_id, "--to", str(to))
    assert done.code == 0, done.err
    assert (to / "deep/er/out.txt").read_text() == "hello"
    assert (to / "model.pt").read_text() == "kept\n"
    assert (to / "empty").read_bytes() == b""
    by_name = {a["name"]: a for a in listed["artifacts"]}
    weights = (to / "weights.bin").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == by_name["weights.bin"]["digest"]
    assert (to / "latest").read_bytes() == weights
    assert not (to / "latest").is_symlink()
    one = cluster.corral("artifacts", "get", ended.task_id, "no such", "--to", str(to))
    assert one.code == 1
    assert "left no file" in one.err
    _check_whole_answer(cluster, ended.task_id, weights)


def _check_whole_answer(cluster: Cluster, task_id: str, weights: bytes) -> None:
    key = (cluster.home / "admin.key").read_text().strip()
    url = f"{cluster.url}/tasks/{task_id}/artifacts/weights.bin"
    headers = {"Authorization": f"Bearer {key}"}
    whole = httpx.get(url, headers=headers)
    assert (whole.status_code, whole.content) == (200, weights)
    assert whole.headers["content-length"] == str(len(weights))
    part = httpx.get(url, headers={**headers, "Range": "bytes=8388600-8388620"})
    assert (part.status_code, part.content) == (206, weights[8388600:8388621])
    assert part.headers["content-range"] == f"bytes 8388600-8388620/{len(weights)}"
    beyond = httpx.get(url, headers={**headers, "Range": "bytes=20000000-"})
    assert (beyond.status_code, beyond.content) == (416, b"")


@pytest.mark.timeout(300)
def test_files_are_kept_of_a_script_that_failed_ran_too_long_or_was_cancelled(
    cluster: Cluster,
) -> None:
    client = cluster.client
    failed = run(cluster, "echo a > $CORRAL_ARTIFACTS/log; exit 7")
    assert failed.status == "failed"
    assert failed.result["exit_code"] == 7
    assert [a["name"] for a in failed.result["artifacts"]] == ["log"]
    late = run(cluster, "echo b > $CORRAL_ARTIFACTS/log; sleep 60", timeout=2)
    assert late.status == "timed_out"
    assert [a.name for a in client.artifacts(late).artifacts] == ["log"]
    text = "echo c > $CORRAL_ARTIFACTS/log; echo up; sleep 60"
    sent = client.submit("run_script", {"command": ["sh", "-c", text]})
    until("it is up", lambda: list(client.logs(sent.task_id)))
    client.cancel(sent.task_id)
    until("its files", lambda: client.artifacts(sent.task_id).artifacts)
    assert client.get_task(sent.task_id).status == "cancelled"


# Whoever begins at the beginning never comes to the end, however slow the others are.
COUNT = """
n=$(cat $CORRAL_CHECKPOINT/count 2>/dev/null || echo 0)
echo "began at $n"
if [ $n = 0 ]; then last=8 pause=1; else last=12 pause=0.1; fi
while [ $n -lt $last ]; do
  n=$((n + 1)); echo $n > $CORRAL_CHECKPOINT/next
  mv $CORRAL_CHECKPOINT/next $CORRAL_CHECKPOINT/count; echo "at $n"
  sleep $pause
done
[ $last = 12 ] || sleep 600
"""


@pytest.mark.timeout(300)
def test_a_script_goes_on_from_its_checkpoint_after_its_worker_was_killed(
    cluster: Cluster,
) -> None:
    client = cluster.client
    sent = client.submit("run_script", {"command": ["sh", "-c", COUNT]}, timeout=120)

    def lines() -> list[str]:
        return [line.text for line in client.logs(sent.task_id)]

    until("it counts", lambda: "at 6" in lines())
    (supervisor,) = cluster.worker_pids("run_script")
    os.kill(supervisor, 9)
    ended = client.wait(sent.task_id, 120)
    assert ended.is_completed, ended.error
    assert ended.attempt == 2
    began = [line for line in lines() if line.startswith("began at")]
    assert began[0] == "began at 0"
    assert int(began[1].rpartition(" ")[2]) >= 2
    assert lines()[-1] == "at 12"
    cluster.serving("run_script")


@pytest.mark.timeout(300)
def test_a_checkpoint_follows_its_task_to_another_node(tmp_path: Path) -> None:
    cluster = Cluster.start(
        tmp_path / "home",
        [],
        CORRAL_BEAT_S="1",
        CORRAL_SUSPECT_AFTER_S="3",
        CORRAL_LOST_AFTER_S="5",
    )
    often = ("env", "CORRAL_CHECKPOINT_S=1")
    try:
        client = cluster.client
        dying = cluster.join("dying", [SCRIPTS], *often)
        cluster.serving("run_script")
        sent = client.submit("run_script", {"command": ["sh", "-c", COUNT]})

        def lines() -> list[str]:
            return [line.text for line in client.logs(sent.task_id)]

        until("it counts", lambda: "at 6" in lines())
        first = client.get_task(sent.task_id).node_id
        cluster.join("heir", [SCRIPTS], *often)
        cluster.serving("run_script", 2)
        dying.kill_all()
        ended = client.wait(sent.task_id, 120)
        assert ended.is_completed, ended.error
        assert ended.node_id != first
        began = [int(x.split()[2]) for x in lines() if x.startswith("began at")]
        assert began[0] == 0
        assert began[1] >= 2
    finally:
        cluster.stop()


@pytest.mark.timeout(240)
def test_a_failed_attempt_leaves_its_checkpoint_to_the_next_and_to_a_requeue(
    cluster: Cluster,
) -> None:
    text = (
        "cd $CORRAL_CHECKPOINT; ls -A | wc -l; mkdir -p sub; "
        "touch sub/$CORRAL_ATTEMPT; "
        "ln -sfn sub link; ls sub; [ $CORRAL_ATTEMPT -ge 3 ]"
    )
    ended = run(cluster, text, retries=1)
    assert (ended.status, ended.attempt) == ("failed", 2)
    cluster.client.requeue(ended.task_id)
    ended = cluster.client.wait(ended.task_id, 60)
    assert ended.is_completed
    assert ended.result["stdout"].split() == ["2", "1", "2", "3"]
    cluster.client.requeue(ended.task_id)
    again = cluster.client.wait(ended.task_id, 60)
    assert again.result["stdout"].split() == ["0", "4"], "a completed task starts anew"


@pytest.mark.timeout(240)
def test_a_changed_file_of_a_large_folder_is_sent_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for n in range(300):
        place = source / f"part{n % 7}" / f"file{n}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"number {n}\n")
    (source / "large.bin").write_bytes(os.urandom(20_000_000))
    (source / "run.sh").write_text("#!/bin/sh\ncat part*/* | wc -l; sha256sum l*\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("part0/file0.txt")
    arguments = ("run", "--dir", str(source), "--", "./run.sh")
    first = cluster.corral(*arguments)
    assert (first.code, first.out.split()[0]) == (0, "300"), first.err
    before = _stored(cluster)
    (source / "part3" / "file3.txt").write_text("another\nline\n")
    second = cluster.corral(*arguments)
    assert (second.code, second.out.split()[0]) == (0, "301"), second.err
    new = _stored(cluster) - before
    assert len(new) == 2, "the file and the manifest"
    assert sum(size for _, size in new) < 100_000


def _stored(cluster: Cluster) -> set[tuple[str, int]]:
    blobs = (cluster.home / "objects" / "blobs").rglob("*")
    return {(p.name, p.stat().st_size) for p in blobs if p.is_file()}


@pytest.mark.timeout(300)
def test_an_object_store_that_is_away_costs_the_files_and_not_the_outcome(
    tmp_path: Path,
) -> None:
    server = S3Server(tmp_path / "s3")
    server.start()
    cluster = Cluster.start(
        tmp_path / "home",
        [SCRIPTS],
        MINDTRACE_CLUSTER__MINIO_ENDPOINT=f"localhost:{server.port}",
        MINDTRACE_CLUSTER__MINIO_ACCESS_KEY=ACCESS,
        MINDTRACE_CLUSTER__MINIO_SECRET_KEY=SECRET,
        MINDTRACE_CLUSTER__MINIO_BUCKET=BUCKET,
    )
    try:
        cluster.serving("run_script")
        kept = run(cluster, "echo hi > $CORRAL_ARTIFACTS/a; echo done")
        to = tmp_path / "to"
        (path,) = cluster.client.download_artifacts(kept.task_id, to=to)
        assert path.read_text() == "hi\n"
        server.stop()
        ended = run(cluster, "echo other > $CORRAL_ARTIFACTS/a; echo done", timeout=200)
        assert ended.is_completed
        assert ended.result["stdout"] == "done\n"
        assert ended.result["artifacts"] == []
        assert "no artifact could be kept" in ended.result["left_out"]
    finally:
        cluster.stop()
        server.stop()


def test_files_of_an_unknown_task_are_not_found(cluster: Cluster) -> None:
    with pytest.raises(NotFound):
        cluster.client.artifacts("nobody")

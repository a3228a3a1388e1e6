"""Tasks that take GPUs, memory and nodes of a real cluster, from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import Cluster, until

SCRIPT = "corral.worker.script.worker:RunScriptWorker=run_scriptx4"
SHOW = "import os,time; print(os.environ['CORRAL_GPUS'], flush=True); time.sleep(600)"
TRAIN = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
mine = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(mine)
print(f"{int(mine.item())} of {dist.get_world_size()}", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster.start(
        tmp_path_factory.mktemp("needs"),
        [SCRIPT],
        CORRAL_SIMULATED_GPUS="2x24GB",
        CORRAL_HOST_NETWORK="1",
    )
    running.serving("run_script")
    yield running
    running.stop()


def submit(cluster: Cluster, *words: str) -> str:
    ran = cluster.corral("run", "--detach", *words)
    assert ran.code == 0, ran.err
    return ran.out.strip()


def output(cluster: Cluster, task_id: str) -> str:
    done = cluster.client.wait(task_id, 60)
    assert done.status == "completed", done.error
    assert isinstance(done.result, dict)
    return str(done.result["stdout"]).strip()


def test_scripts_get_the_gpus_they_ask_for_and_never_the_same_one(
    cluster: Cluster,
) -> None:
    command = ("--gpus", "1", "--", "python", "-c", SHOW)
    ids = [submit(cluster, *command) for _ in range(2)]
    given = [until("it has begun", partial(printed, cluster, t)) for t in ids]
    assert given[0] != given[1]
    third = submit(cluster, *command)
    told = explain(cluster, third)
    assert told["reason"] == "in_use"
    assert any(task_id in told["message"] for task_id in ids)
    cluster.client.cancel(ids[1])
    assert until("it has begun", lambda: printed(cluster, third)) == given[1]
    cluster.client.cancel(ids[0])
    cluster.client.cancel(third)


def test_what_no_node_has_is_said_with_what_would_do(cluster: Cluster) -> None:
    task = submit(cluster, "--gpus", "3", "--", "true")
    told = explain(cluster, task)
    assert told["reason"] == "too_little"
    assert "has 2 of 3 GPUs" in told["message"]
    ran = cluster.corral("explain", task)
    assert "ask for 1 GPU(s) less" in ran.out
    cluster.client.cancel(task)


def test_bad_needs_are_one_line_and_exit_code_2_or_1(cluster: Cluster) -> None:
    ran = cluster.corral("run", "--gpus", "1.5", "--", "true")
    assert ran.code in (1, 2)
    assert "whole number of cards" in ran.err
    assert "Traceback" not in ran.err


def test_a_gang_waits_for_a_second_node_and_torchrun_finds_both(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("--nodes", "2", "--cpus", "0.5", "--dir", str(tmp_path))
    ran = cluster.corral(
        "run", "--detach", "--json", *words, "--", "torchrun", "train.py"
    )
    assert ran.code == 0, ran.err
    members = json.loads(ran.out)["task_ids"]
    assert explain(cluster, members[0])["reason"] == "gang_room"
    cluster.join("two", [SCRIPT], "env", "CORRAL_HOST_NETWORK=1")
    assert [output(cluster, task_id) for task_id in members] == ["3 of 2"] * 2
    nodes = {cluster.client.get_task(task_id).node_id for task_id in members}
    assert len(nodes) == 2


def printed(cluster: Cluster, task_id: str) -> str:
    return cluster.corral("logs", task_id).out.strip()


def explain(cluster: Cluster, task_id: str) -> dict[str, Any]:
    """Why it waits, once it has been looked at."""
    ran = cluster.corral("explain", task_id, "--json")
    assert ran.code == 0, ran.err
    told: dict[str, Any] = json.loads(ran.out)["reason"]
    return told

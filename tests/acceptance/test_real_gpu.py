"""A node with a real NVIDIA card: what is shown of it, and what strangers take of it.

`pytest -m gpu` runs it where there is one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import ECHO, Cluster, until

INFERENCE = "corral.worker.inference:InferenceWorker"
# What CUDA itself takes for a process that uses the card.
CONTEXT_MB = 800
TAKEN_MB = 20_000
# Holds memory of the first card until its stdin ends.
STRANGER = f"""
import sys, torch
kept = torch.empty({TAKEN_MB} << 20, dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA card"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster.start(tmp_path_factory.mktemp("gpu"), [ECHO])
    try:
        until("the card is told", lambda: node_card(started))
        yield started
    finally:
        started.stop()


def smi() -> dict[str, float]:
    """Total, used and free MiB of the first card, as the driver's own tool has them."""
    names = ("memory_total_mb", "memory_used_mb", "memory_free_mb")
    wanted = "--query-gpu=memory.total,memory.used,memory.free"
    said = subprocess.run(
        ["nvidia-smi", wanted, "--format=csv,noheader,nounits", "--id=0"],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(names, map(float, said.stdout.split(",")), strict=True))


def node_card(cluster: Cluster) -> dict[str, Any]:
    rows = json.loads(cluster.corral("nodes", "--json").out)
    cards = [gpu for row in rows for gpu in row["gpus"] if gpu["vendor"] == "nvidia"]
    return cards[0] if cards else {}


def doctor_card(cluster: Cluster) -> dict[str, Any]:
    ran = cluster.corral("doctor", "--json")
    checks = json.loads(ran.out)["checks"]
    assert not [c for c in checks if c["verdict"] == "problem"], checks
    found: dict[str, Any] = next(
        check["facts"]
        for check in checks
        if check["name"] == "gpu" and check["facts"].get("vendor") == "nvidia"
    )
    return found


def agrees(card: dict[str, Any], told: dict[str, float]) -> bool:
    """Within 1 % of the card's memory."""
    slack = told["memory_total_mb"] / 100
    return all(abs(card[name] - value) <= slack for name, value in told.items())


def told_as(cluster: Cluster, told: dict[str, float]) -> dict[str, Any] | None:
    card = node_card(cluster)
    return card if agrees(card, told) else None


def test_doctor_and_nodes_agree_with_the_drivers_tool(cluster: Cluster) -> None:
    told = smi()
    assert agrees(doctor_card(cluster), told)
    assert agrees(node_card(cluster), told)
    said = cluster.corral("doctor")
    assert said.code == 0, said
    sys.stdout.write(f"{told}\n{said.out}{cluster.corral('status').out}")


def test_what_a_stranger_takes_is_seen_and_not_offered(cluster: Cluster) -> None:
    before = node_card(cluster)
    with subprocess.Popen(
        [sys.executable, "-c", STRANGER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "held\n"
        told = smi()
        # A look at the cards every 5 s, and a beat.
        card = until("the node tells of it", lambda: told_as(cluster, told), 12)
        assert card["memory_used_mb"] - before["memory_used_mb"] >= TAKEN_MB
        taken = before["memory_offered_mb"] - card["memory_offered_mb"]
        assert taken == pytest.approx(told["memory_used_mb"], rel=0.02)
        assert not all(process["is_ours"] for process in card["processes"])
        assert agrees(doctor_card(cluster), told)
        stranger.communicate()
    until("it is free again", lambda: agrees(node_card(cluster), smi()), 12)


@pytest.mark.spec("B25")
def test_files_that_come_by_way_of_the_catalogue_end_in_the_cards_memory(
    cluster: Cluster, tmp_path: Path
) -> None:
    # Late: they bring torch along.
    from bench.gpu_weights import Shape, prompt, save_model

    save_model(tmp_path / "mine", Shape(1024, 8))
    size_mb = (tmp_path / "mine" / "model.safetensors").stat().st_size / 2**20
    added = cluster.corral("models", "add", "mine", str(tmp_path / "mine"), "--upload")
    assert added.code == 0, added
    # What was sent is all there is of it.
    shutil.rmtree(tmp_path / "mine")
    client = cluster.client
    client.launch_worker(INFERENCE, name="models", job_types=["generate"], gpus=1)
    before = smi()["memory_used_mb"]
    ask = {"prompt": prompt(1), "max_tokens": 4}
    told = client.run("generate", ask, model_name="mine", timeout=120)
    assert told["tokens"] == 4
    assert smi()["memory_used_mb"] - before >= size_mb
    (held,) = (m for worker in client.models() for m in worker.models)
    assert (held.name, held.status) == ("mine", "loaded")
    # torch takes memory in blocks, which are more than so small a model fills.
    assert held.memory_usage == pytest.approx(size_mb, rel=0.15)
    client.unload_model("mine")
    until(
        "the card has it back",
        lambda: smi()["memory_used_mb"] - before < CONTEXT_MB,
    )

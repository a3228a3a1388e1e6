"""A short load from several users at once: every answer right, none refused."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cluster import ECHO, Cluster

SECONDS = int(os.environ.get("LOAD_SECONDS", "5"))
USERS = int(os.environ.get("LOAD_USERS", "16"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster.start(tmp_path_factory.mktemp("load"), [ECHO])
    try:
        started.serving("echo")
        yield started
    finally:
        started.stop()


@pytest.mark.timeout(600)
def test_no_request_fails_under_load(cluster: Cluster, tmp_path: Path) -> None:
    key = (cluster.home / "admin.key").read_text().strip()
    told = subprocess.run(
        [
            sys.executable, "-m", "locust", "--headless", "--only-summary",
            "-f", str(Path(__file__).with_name("api_endpoints.py")),
            "--host", cluster.url, "--users", str(USERS), "--spawn-rate", str(USERS),
            "--run-time", f"{SECONDS}s", "--csv", str(tmp_path / "load"),
        ],
        env={**cluster.environment, "CORRAL_API_KEY": key},
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
        check=False,
    )  # fmt: skip
    sys.stdout.write(told.stderr)
    with (tmp_path / "load_stats.csv").open() as file:
        total = next(row for row in csv.DictReader(file) if row["Name"] == "Aggregated")
    assert told.returncode == 0, told.stdout[-2000:]
    assert int(total["Failure Count"]) == 0
    assert int(total["Request Count"]) > 100

"""Every example of the job API runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.cluster import ROOT, clean_environment, free_port

SAYS = {
    "cluster_as_gateway": "completed {'echoed': 'Hello'} echo/run",
    "cluster_with_node": "completed {'echoed': 'hello'}",
    "autoregister": "queued\ncompleted {'echoed': 'patience'}",
    "prelaunched_worker": "{'echoed': 'directly'}\ncompleted {'echoed': 'connected'}",
    "separate_node": "Node completed {'echoed': 'from afar'}",
    "multiprocess": "8 jobs ran on 4 workers",
    "two_workers": "echo_job completed {'echoed': 'one'}\n"
    "sleep_job completed {'slept': 0.1}",
    "run_script": "completed hello from Git",
    "worker_from_git": "completed {'shouted': 'HELLO', 'has': 'iniconfig'}",
    "dead_letters": "RuntimeError: no luck today\nqueued",
}


def test_every_example_has_its_test() -> None:
    files = {path.stem for path in (ROOT / "examples" / "jobs").glob("*.py")}
    assert files == set(SAYS)


@pytest.mark.spec("E39")
@pytest.mark.parametrize("name", SAYS)
def test_example_says_what_it_promises(name: str, tmp_path: Path) -> None:
    path = ROOT / "examples" / "jobs" / f"{name}.py"
    told = subprocess.run(
        [sys.executable, str(path), str(free_port()), str(free_port())],
        env=clean_environment(CORRAL_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == SAYS[name]

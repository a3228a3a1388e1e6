"""What of a machine's own environment whoever starts a worker gets to see."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from corral.agent.life.worker_process import inherited
from tests.security.conftest import MACHINES_OWN, Attacked

USUAL = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "CUDA_HOME",
    "NCCL_DEBUG",
    "HF_HOME",
    "https_proxy",
    "NO_PROXY",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "TOKENIZERS_PARALLELISM",
    "CORRAL_LOG_LEVEL",
)
OTHERS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SESSION_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_CLIENT_SECRET",
    "OPENAI_API_KEY",
    "HF_TOKEN",
    "SSH_AUTH_SOCK",
    "KUBECONFIG",
    "PGPASSWORD",
    "DATABASE_URL",
    "VLLM_API_KEY",
)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_l4_workers_have_nothing_of_the_machines_credentials(
    attacked: Attacked,
) -> None:
    cluster = attacked.cluster
    assert MACHINES_OWN in environment_of(cluster.pid("agent"))
    supervisors = cluster.worker_pids("echo")
    runners = [pid for each in supervisors for pid in cluster.runner_pids(each)]
    assert runners
    for pid in (*supervisors, *runners):
        assert "PATH=" in environment_of(pid)
        assert MACHINES_OWN not in environment_of(pid)


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text(errors="replace")


def test_l4_workers_inherit_a_list_and_what_a_setting_adds() -> None:
    ours = dict.fromkeys((*USUAL, *OTHERS, "DATA_DIR"), "x")
    assert inherited(ours).keys() == set(USUAL)
    more = inherited(ours, ("DATA_DIR", "AWS_*"))
    added = {"DATA_DIR", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"}
    assert more.keys() == {*USUAL, *added}

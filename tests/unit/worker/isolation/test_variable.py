"""The environment a job gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from corral.worker.isolation import (
    SandboxJob,
    SandboxLimits,
    clean_environment,
)

BARE = SandboxJob(("true",), Path("/j/folder"), Path("/j/scratch"), "m-1")


def test_only_what_is_known_harmless_is_kept() -> None:
    base = {
        "PATH": "/x/bin",
        "LC_ALL": "C",
        "TZ": "UTC",
        "CORRAL_API_KEY": "s",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HF_TOKEN": "s",
        "PYTHONPATH": "/agent",
        "LD_PRELOAD": "/agent.so",
        "SSH_AUTH_SOCK": "/run/agent",
        "PIP_INDEX_URL": "s",
    }
    got = clean_environment(base, BARE)
    assert (got["PATH"], got["LC_ALL"], got["TZ"]) == ("/x/bin", "C", "UTC")
    assert not got.keys() & (base.keys() - {"PATH", "LC_ALL", "TZ"})


def test_home_and_temporary_folders_lie_in_the_scratch_folder() -> None:
    got = clean_environment({"HOME": "/root", "XDG_RUNTIME_DIR": "/run/u"}, BARE)
    places = [got[n] for n in got if n in ("HOME", "TMPDIR") or n.startswith("XDG_")]
    assert len(places) == 7
    assert all(place.startswith("/j/scratch/") for place in places)


def test_an_empty_list_of_gpus_hides_all() -> None:
    got = clean_environment({"CUDA_VISIBLE_DEVICES": "0,1"}, BARE)
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    assert [got[name] for name in names] == ["-1", "-1", "-1"]


def test_a_job_sees_its_gpus_and_cannot_ask_for_others() -> None:
    asked = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "NAME": "mine"}
    got = clean_environment({}, replace(BARE, gpus=("2", "3"), environment=asked))
    assert got["CUDA_VISIBLE_DEVICES"] == got["ROCR_VISIBLE_DEVICES"] == "2,3"
    assert got["HIP_VISIBLE_DEVICES"] == "0,1"
    assert got["NAME"] == "mine"


def test_thread_hints_follow_the_processors() -> None:
    assert "OMP_NUM_THREADS" not in clean_environment({}, BARE)
    few = replace(BARE, limits=SandboxLimits(cpus=2.5))
    assert clean_environment({}, few)["OMP_NUM_THREADS"] == "2"
    less = replace(BARE, limits=SandboxLimits(cpus=0.5))
    assert clean_environment({}, less)["OMP_NUM_THREADS"] == "1"


def test_marks_are_passed_on_whatever_the_job_asks() -> None:
    asked = {"CORRAL_JOB_MARK": "x", "CORRAL_AGENT_MARK": "x"}
    job = replace(BARE, environment=asked)
    got = clean_environment({"CORRAL_AGENT_MARK": "a-1"}, job)
    assert (got["CORRAL_JOB_MARK"], got["CORRAL_AGENT_MARK"]) == ("m-1", "a-1")


def test_a_job_of_a_worker_with_cards_sees_those_and_no_others() -> None:
    base = {
        "CORRAL_GPUS": "GPU-1,GPU-2",
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
        "ROCR_VISIBLE_DEVICES": "-1",
    }
    asked = {"CUDA_VISIBLE_DEVICES": "0", "CORRAL_GPUS": "GPU-9"}
    free = clean_environment(base, replace(BARE, gpus=None, environment=asked))
    assert {name: free[name] for name in base} == base
    few = clean_environment(base, replace(BARE, gpus=("GPU-2", "GPU-9")))
    assert few["CUDA_VISIBLE_DEVICES"] == few["CORRAL_GPUS"] == "GPU-2"
    none = clean_environment(base, BARE)
    assert (none["CUDA_VISIBLE_DEVICES"], none["CORRAL_GPUS"]) == ("-1", "")
    unbound = clean_environment({"CUDA_VISIBLE_DEVICES": "0"}, replace(BARE, gpus=None))
    assert "CUDA_VISIBLE_DEVICES" not in unbound

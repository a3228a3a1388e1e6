"""What is asked of an engine for a job; no engine is needed to see it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from corral.errors import WorkerError
from corral.worker.container.job import (
    ContainerJob,
    ContainerSettings,
    Gpus,
    bound_gpus,
    bound_variables,
    read_volumes,
)
from corral.worker.container.request import Traits, create_body
from corral.worker.isolation.job import SandboxLimits

DOCKER = Traits(version="27.0", is_podman=False, is_rootless=False)
PODMAN = Traits(version="4.3.1", is_podman=True, is_rootless=False)


def ask(
    settings: ContainerSettings | None = None, traits: Traits = DOCKER, **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    job = ContainerJob("image:1", ("run", "it"), mark="node/task/1", **more)
    body = create_body(job, settings or ContainerSettings(), traits, "me")
    return body, body["host_config"]


def test_a_job_gets_no_rights_no_network_and_no_host_namespace() -> None:
    body, host = ask()
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["NetworkMode"] == "none"
    assert host["LogConfig"] == {"Type": "none", "Config": {}}
    for forbidden in ("Privileged", "CapAdd", "PidMode", "IpcMode", "UTSMode", "Binds"):
        assert forbidden not in host
    assert body["user"] == f"{os.getuid()}:{os.getgid()}"
    assert body["labels"] == {
        "corral.mark": "node/task/1",
        "corral.owner": "me",
        "corral.pid": str(os.getpid()),
    }


def test_the_user_of_a_rootless_engine_is_root_inside() -> None:
    body, _ = ask(traits=Traits(version="5", is_podman=True, is_rootless=True))
    assert body["user"] == "0:0"


def test_a_user_the_image_does_not_know_has_a_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    body, _ = ask()
    assert body["environment"] == {"HOME": "/tmp"}
    body, _ = ask(environment={"HOME": "/job"})
    assert body["environment"] == {"HOME": "/job"}


def test_limits_are_asked_for_without_swap_on_top() -> None:
    _, host = ask(
        limits=SandboxLimits(
            memory_mb=64, cpus=1.5, processes=20, open_files=99, file_size_mb=2
        )
    )
    assert host["Memory"] == host["MemorySwap"] == 64 * 1024 * 1024
    assert host["NanoCpus"] == 1_500_000_000
    assert host["PidsLimit"] == 20
    told = {each.name: each.hard for each in host["Ulimits"]}
    assert (told["nofile"], told["fsize"]) == (99, 2 * 1024 * 1024)


def test_there_is_always_a_limit_on_processes() -> None:
    _, host = ask()
    assert host["PidsLimit"] == 4096


def test_a_read_only_root_has_a_tmp_of_its_own() -> None:
    _, host = ask(is_read_only=True)
    assert host["ReadonlyRootfs"] is True
    assert list(host["Tmpfs"]) == ["/tmp"]


def test_nvidia_gpus_are_requested_by_id() -> None:
    _, host = ask(gpus=Gpus("nvidia", ("0", "GPU-7")))
    [request] = host["DeviceRequests"]
    assert request["Driver"] == "nvidia"
    assert request["DeviceIDs"] == ["0", "GPU-7"]
    assert request["Capabilities"] == [["gpu"]]


def test_all_nvidia_gpus_are_requested_by_count() -> None:
    _, host = ask(gpus=Gpus("nvidia"))
    assert host["DeviceRequests"][0]["Count"] == -1


def test_nvidia_gpus_on_podman_are_refused_instead_of_silently_missing() -> None:
    with pytest.raises(WorkerError, match=r"Podman 4\.3\.1 gives no NVIDIA GPUs"):
        ask(traits=PODMAN, gpus=Gpus("nvidia"))


def test_amd_gpus_are_device_files() -> None:
    _, host = ask(gpus=Gpus("amd"), traits=PODMAN)
    assert [each["PathOnHost"] for each in host["Devices"]] == ["/dev/kfd", "/dev/dri"]
    assert "DeviceRequests" not in host


def test_network_needs_leave() -> None:
    with pytest.raises(WorkerError, match="no network on this node"):
        ask(network=True)
    _, host = ask(ContainerSettings(may_use_network=True), network=True)
    assert host["NetworkMode"] not in ("none", "host")


def test_a_device_needs_leave(tmp_path: Path) -> None:
    leave = ContainerSettings(allowed_devices=("/dev/null",))
    _, host = ask(leave, devices=("/dev/null:/dev/nothing:r",))
    assert host["Devices"] == [
        {
            "PathOnHost": "/dev/null",
            "PathInContainer": "/dev/nothing",
            "CgroupPermissions": "r",
        }
    ]
    for device in ("/dev/zero", "/dev/../dev/zero", str(tmp_path), "/dev/null:/etc/x"):
        with pytest.raises(WorkerError, match="device"):
            ask(leave, devices=(device,))


def test_own_folders_need_no_leave(tmp_path: Path) -> None:
    _, host = ask(folders={str(tmp_path): ("/job", "ro")})
    [mount] = host["Mounts"]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (
        str(tmp_path), "/job", True,
    )  # fmt: skip


def test_a_volume_is_mounted_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    leave = ContainerSettings(allowed_volumes=(str(tmp_path),))
    _, host = ask(leave, volumes={str(tmp_path / "link"): ("/in", "rw")})
    assert host["Mounts"][0]["Source"] == str(tmp_path / "real")


@pytest.mark.parametrize(
    "inside", ["/", "/proc/x", "/dev", "/corral/lib", "in", "/a/../b", "/sys"]
)
def test_a_volume_never_hides_what_must_be_seen(tmp_path: Path, inside: str) -> None:
    leave = ContainerSettings(allowed_volumes=(str(tmp_path),))
    with pytest.raises(WorkerError, match="cannot be mounted"):
        ask(leave, volumes={str(tmp_path): (inside, "rw")})


def test_a_folder_allowed_for_reading_is_not_written(tmp_path: Path) -> None:
    leave = ContainerSettings(allowed_volumes=(f"{tmp_path}:ro",))
    with pytest.raises(WorkerError, match="for reading only"):
        ask(leave, volumes={str(tmp_path): ("/in", "rw")})
    _, host = ask(leave, volumes={str(tmp_path): ("/in", "ro")})
    assert host["Mounts"][0]["ReadOnly"] is True


def test_a_volume_that_is_not_there_or_not_allowed_is_refused(tmp_path: Path) -> None:
    leave = ContainerSettings(allowed_volumes=(str(tmp_path / "a"),))
    (tmp_path / "a").mkdir()
    (tmp_path / "ab").mkdir()
    for host in (tmp_path / "ab", tmp_path / "a" / "..", tmp_path):
        with pytest.raises(WorkerError, match="is not allowed"):
            ask(leave, volumes={str(host): ("/in", "ro")})
    with pytest.raises(WorkerError, match="is not on this node"):
        ask(leave, volumes={str(tmp_path / "a" / "b"): ("/in", "ro")})
    with pytest.raises(WorkerError, match="absolute"):
        ask(leave, volumes={"a": ("/in", "ro")})


def test_a_users_volumes_are_read_with_their_mode() -> None:
    assert read_volumes({"/a": "/x", "/b": "/y:ro", "/c": "/z:rw", "/d": "/q:7"}) == {
        "/a": ("/x", "rw"),
        "/b": ("/y", "ro"),
        "/c": ("/z", "rw"),
        "/d": ("/q:7", "rw"),
    }


def test_a_workers_own_cards_are_given_to_its_containers() -> None:
    none = {"CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
    nvidia = {**none, "CORRAL_GPUS": "GPU-1", "CUDA_VISIBLE_DEVICES": "GPU-1"}
    amd = {**none, "CORRAL_GPUS": "GPU-2", "ROCR_VISIBLE_DEVICES": "GPU-2,GPU-3"}
    assert bound_gpus(nvidia) == Gpus("nvidia", ("GPU-1",))
    assert bound_gpus(amd) == Gpus("amd", ("GPU-2", "GPU-3"))
    assert bound_variables(amd)["ROCR_VISIBLE_DEVICES"] == "GPU-2,GPU-3"
    assert "CUDA_VISIBLE_DEVICES" not in bound_variables(nvidia)
    assert bound_gpus({**none, "CORRAL_GPUS": "SIM-1"}) is None
    assert bound_gpus({"CUDA_VISIBLE_DEVICES": "0"}) is None
    assert bound_variables({"CUDA_VISIBLE_DEVICES": "0"}) == {}

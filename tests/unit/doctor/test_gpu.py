"""GPUs: each card a line, and a reason for each card that is not seen."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from corral.agent.gpu_policy import GpuPolicy
from corral.core.nodes.gpu import Gpu
from corral.doctor import gpu
from corral.doctor.check import CheckResult, CheckStatus
from corral.doctor.gpu import (
    BusCard,
    DeviceFile,
    GpuFact,
    KernelFact,
    judge,
    reason,
)
from tests.unit.agent.probe.machine import Machine
from tests.unit.agent.probe.standin_nvml import H200

HANG = "import threading\nthreading.Event().wait(60)\n"
CARD = Gpu("GPU-1", "nvidia", "H200", driver="570.1", is_offered=True)
ADDRESS = "0000:19:00.0"


def on_bus(vendor: str, driver: str | None = None) -> tuple[BusCard, ...]:
    return (BusCard(ADDRESS, vendor, driver),)


@pytest.mark.parametrize(
    ("vendor", "said", "scene", "found", "fix"),
    [
        (
            "nvidia",
            "NVMLError_LibRmVersionMismatch: Driver/library version mismatch",
            KernelFact(on_bus("nvidia", "nvidia")),
            "driver was updated",
            "restart",
        ),
        (
            "nvidia",
            "it did not answer within 5 s",
            KernelFact(on_bus("nvidia", "nvidia")),
            "hangs",
            "dmesg",
        ),
        (
            "nvidia",
            "no NVIDIA driver: NVML Shared Library Not Found",
            KernelFact(on_bus("nvidia", "nouveau")),
            "driven by nouveau",
            "block nouveau",
        ),
        (
            "nvidia",
            "no NVIDIA driver: Driver Not Loaded",
            KernelFact(on_bus("nvidia")),
            "no driver is loaded",
            "modprobe nvidia",
        ),
        (
            "nvidia",
            "no NVIDIA driver: NVML Shared Library Not Found",
            KernelFact(
                on_bus("nvidia", "nvidia"), (DeviceFile("/dev/nvidiactl", True),)
            ),
            "libnvidia-ml.so.1 is not found",
            "same driver version",
        ),
        (
            "nvidia",
            "no NVIDIA driver: NVML Shared Library Not Found",
            KernelFact(on_bus("nvidia", "nvidia"), is_container=True),
            "container was not given /dev/nvidia*",
            "--gpus all",
        ),
        (
            "nvidia",
            "no NVIDIA driver: Driver Not Loaded",
            KernelFact(
                on_bus("nvidia", "nvidia"),
                (DeviceFile("/dev/nvidiactl", False, "video"),),
                user="ann",
            ),
            "ann may not open /dev/nvidiactl",
            "usermod -aG video ann",
        ),
        (
            "amd",
            "no AMD card with a driver",
            KernelFact(on_bus("amd", "vfio-pci")),
            "virtual machines",
            "vfio",
        ),
        (
            "intel",
            "no Intel card with a driver",
            KernelFact(on_bus("intel")),
            "no driver is loaded",
            "i915",
        ),
        ("apple", "it is odd", KernelFact(), "it is odd", "corral.agent.probe apple"),
    ],
)
def test_a_card_that_is_not_seen_has_its_reason(
    vendor: str, said: str, scene: KernelFact, found: str, fix: str
) -> None:
    what, todo = reason(vendor, said, scene)
    assert found in what
    assert fix in todo


def verdicts(told: GpuFact) -> list[CheckStatus]:
    return [line.verdict for line in judge(told)]


def test_no_card_at_all_is_a_problem_unless_none_is_wanted() -> None:
    (line,) = judge(GpuFact([], {}, KernelFact()))
    assert line.verdict is CheckStatus.PROBLEM
    assert "CORRAL_GPU_DEVICES=none" in line.fix
    assert verdicts(GpuFact([], {}, KernelFact(), devices=())) == [CheckStatus.OK]
    assert verdicts(GpuFact([], {}, KernelFact(), is_needed=False)) == [CheckStatus.OK]


def test_a_card_is_told_with_its_figures() -> None:
    card = Gpu(
        "GPU-1",
        "nvidia",
        "H200",
        memory_total_mb=143771.0,
        memory_used_mb=512.4,
        memory_free_mb=143258.6,
        driver="570.1",
        is_offered=True,
    )
    (line,) = judge(GpuFact([card], {}, KernelFact()))
    assert line.found == (
        "0: H200, GPU-1, 143771 MiB, 512 used, 143259 free, driver 570.1, offered"
    )
    assert line.facts["memory_used_mb"] == 512.4


def test_a_failing_card_a_strange_name_and_a_closed_file_are_problems() -> None:
    failed = Gpu("GPU-2", "nvidia", "H200", error="fell off the bus")
    assert verdicts(GpuFact([failed], {}, KernelFact())) == [CheckStatus.PROBLEM]
    part = Gpu("0000:00:02.0", "intel", "Iris", is_integrated=True)
    assert verdicts(GpuFact([part], {}, KernelFact())) == [
        CheckStatus.OK,
        CheckStatus.WARN,
    ]
    told = GpuFact([CARD], {}, KernelFact(), devices=("GPU-1", "7"))
    assert verdicts(told) == [CheckStatus.OK, CheckStatus.PROBLEM]
    scene = KernelFact(files=(DeviceFile("/dev/kfd", False, "render"),), user="ann")
    amd = Gpu("GPU-3", "amd", "W7700", is_offered=True)
    *_, line = judge(GpuFact([amd], {}, scene))
    assert line.found == "AMD: ann may not open /dev/kfd"
    assert "usermod -aG render ann" in line.fix


def test_graphics_of_a_processor_are_no_reason_to_fail_beside_a_real_card() -> None:
    faults = {"intel": "no Intel card with a driver"}
    told = GpuFact([CARD], faults, KernelFact(on_bus("intel")))
    assert verdicts(told) == [CheckStatus.OK, CheckStatus.WARN]
    assert verdicts(GpuFact([], faults, KernelFact())) == [CheckStatus.PROBLEM]


def looked(machine: Machine, timeout_s: float) -> list[CheckResult]:
    policy, folder = GpuPolicy(timeout_s=timeout_s), machine.root / "ledger"
    told = gpu.look(policy, "n1", folder, machine.environment, machine.root)
    return list(judge(told))


def test_a_hanging_library_delays_by_its_limit_and_hides_no_other_card(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.plug_amd("0000:03:00.0", serial="9246000000000001")
    machine.plug_nvidia(cards=[H200])
    machine.add_library("pynvml", HANG)
    began = time.monotonic()
    found = looked(machine, timeout_s=3.0)
    assert time.monotonic() - began < gpu.timeout_s(GpuPolicy(timeout_s=3.0), tmp_path)
    assert [line.verdict for line in found] == [CheckStatus.OK, CheckStatus.PROBLEM]
    assert "GPU-9246000000000001" in found[0].found
    assert "NVIDIA: its library hangs" in found[1].found


def test_a_machine_with_its_driver_gone_is_explained(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.plug_nvidia(cards=[H200])
    machine.add_library("pynvml", "raise OSError('Driver/library version mismatch')")
    (line,) = looked(machine, timeout_s=20.0)
    assert line.fix == "restart this machine"
    scene = gpu.scene(machine.root)
    assert scene.cards == (BusCard(ADDRESS, "nvidia", None),)


def test_files_and_loaded_drivers_are_read(tmp_path: Path) -> None:
    for name in ("dev/nvidiactl", "dev/dri/renderD128", "proc/modules"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("amdgpu 1 0\nnouveau 2 0\n")
    (tmp_path / ".dockerenv").touch()
    scene = gpu.scene(tmp_path)
    assert [file.path for file in scene.files] == [
        "/dev/nvidiactl",
        "/dev/dri/renderD128",
    ]
    assert scene.loaded == {"amdgpu", "nouveau"}
    assert scene.is_container

"""NVIDIA, Intel, Apple, Windows and simulated cards, each by its own probe."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from corral.agent.probe.apple import AppleProbe, read_profile
from corral.agent.probe.base import ProbeResult
from corral.agent.probe.intel import IntelProbe
from corral.agent.probe.nvidia import NvidiaProbe
from corral.agent.probe.simulated import SimulatedProbe
from corral.agent.probe.vendor import likely
from corral.agent.probe.windows import AdapterDesc, WindowsProbe, gpus
from corral.core.nodes.gpu import arrange
from corral.worker.runner.gpu_memory import hold
from tests.unit.agent.probe.machine import Machine, recorded, write
from tests.unit.agent.probe.standin_nvml import H200

STANDIN = "tests.unit.agent.probe.standin_nvml"


Nvidia = Callable[..., ProbeResult]


@pytest.fixture
def nvidia(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nvidia:
    """What the probe finds when NVML answers as told."""

    def read(**told: Any) -> ProbeResult:
        file = tmp_path / "nvml.json"
        file.write_text(json.dumps(told), encoding="utf-8")
        monkeypatch.setenv("STANDIN_NVML", str(file))
        probe = NvidiaProbe(STANDIN)
        found = probe.read()
        probe.close()
        return found

    return read


def test_an_nvidia_card_is_told_in_full(nvidia: Nvidia) -> None:
    card = {**H200, "used": 1004, "processes": [[4711, 1000]]}
    (gpu,) = nvidia(cards=[card]).gpus
    assert (gpu.id, gpu.name) == (H200["uuid"], "NVIDIA H200")
    assert gpu.pci_address == "0000:19:00.0"
    assert (gpu.memory_total_mb, gpu.memory_used_mb) == (143771.0, 1004.0)
    assert gpu.memory_free_mb == 142767.0
    assert (gpu.utilization_percent, gpu.temperature_c) == (7.0, 31)
    assert (gpu.power_w, gpu.driver) == (76.543, "580.159.03")
    assert gpu.compute == "9.0"
    assert [(p.pid, p.memory_mb) for p in gpu.processes] == [(4711, 1000.0)]


def test_names_in_bytes_of_older_libraries_are_read(
    nvidia: Nvidia,
) -> None:
    (gpu,) = nvidia(cards=[{**H200, "is_old": True}]).gpus
    assert gpu.name == "NVIDIA H200"


def test_mig_instances_are_offered_instead_of_their_card(
    nvidia: Nvidia,
) -> None:
    parts = [
        {
            "uuid": f"MIG-{n}",
            "name": "H200 MIG 1g.18gb",
            "total": 16384,
            "used": n,
        }
        for n in range(2)
    ]
    found = arrange(nvidia(cards=[{**H200, "parts": parts}]).gpus)
    assert [gpu.id for gpu in found if gpu.is_offered] == ["MIG-0", "MIG-1"]
    assert {gpu.mig_parent for gpu in found[1:]} == {H200["uuid"]}
    assert [gpu.memory_used_mb for gpu in found[1:]] == [0.0, 1.0]
    assert found[0].id == H200["uuid"]
    named = arrange(found, [str(H200["uuid"])])
    assert [gpu.id for gpu in named if gpu.is_offered] == ["MIG-0", "MIG-1"]


def test_a_chip_without_memory_of_its_own_has_the_machines(
    nvidia: Nvidia,
) -> None:
    chip = {"uuid": "GPU-2dee", "name": "NVIDIA GB10", "bus": "0000000F:01:00.0"}
    (gpu,) = nvidia(cards=[chip]).gpus
    assert gpu.shares_memory
    assert gpu.memory_total_mb == pytest.approx(psutil.virtual_memory().total / 2**20)
    assert gpu.pci_address == "000f:01:00.0"
    assert arrange([gpu])[0].is_offered


def test_a_card_that_fell_off_the_bus_hides_no_other(
    nvidia: Nvidia,
) -> None:
    cards = [{**H200, "is_lost": True}, {**H200, "uuid": "GPU-2"}]
    assert [gpu.id for gpu in nvidia(cards=cards).gpus] == ["GPU-2"]


def test_no_nvidia_driver_is_no_fault(nvidia: Nvidia) -> None:
    assert "Not Found" in str(nvidia(missing=True).absent)
    assert "not installed" in str(NvidiaProbe("no_such_library").read().absent)


def test_an_arc_card_is_offered_and_graphics_of_the_processor_are_not(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.plug_intel("0000:00:02.0", "0xa780")
    window = "0x4000000000 0x41fbffffff 0x14220c"
    device = machine.plug_intel("0000:03:00.0", "0x56a1", resource=window)
    write(device / "hwmon/hwmon4", temp2_input=47000, energy1_input=5_000_000)
    names = "8086  Intel Corporation\n\t56a1  DG2 [Arc A750]\n\t\t8086 1021  x\n"
    write(tmp_path / "usr/share/misc", **{"pci.ids": names})
    probe = IntelProbe(tmp_path / "sys")
    inside, card = probe.read().gpus
    assert (inside.is_integrated, card.is_integrated) == (True, False)
    assert (card.name, card.id) == ("DG2 [Arc A750]", "0000:03:00.0")
    assert card.memory_total_mb == 8128.0
    assert card.memory_used_mb is None
    assert card.memory_free_mb is None
    assert (card.temperature_c, card.power_w) == (47.0, None)
    write(device / "hwmon/hwmon4", energy1_input=9_000_000)
    power_w = probe.read().gpus[1].power_w
    assert power_w is not None
    assert power_w > 0


@pytest.mark.parametrize(
    ("file", "name", "metal"),
    [
        ("system_profiler_m3.json", "Apple M3 Pro", "metal3"),
        ("system_profiler_m1.json", "Apple M1", "mtlgpufamilyapple7"),
    ],
)
def test_apple_silicon_is_offered_with_the_machines_memory(
    file: str, name: str, metal: str
) -> None:
    (gpu,) = arrange(read_profile(json.loads(recorded(file))))
    assert (gpu.name, gpu.vendor, gpu.compute) == (name, "apple", metal)
    assert gpu.shares_memory
    assert gpu.is_offered


def test_the_profiler_of_a_mac_is_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    text = recorded("system_profiler_m3.json")
    machine.add_tool("system_profiler", f"cat <<'X'\n{text}\nX")
    probe = AppleProbe((str(tmp_path / "bin/system_profiler"),))
    assert [gpu.name for gpu in probe.read().gpus] == ["Apple M3 Pro"]


def test_adapters_of_directx_become_cards_with_ids_of_their_own() -> None:
    card = {"vendor_id": 0x1002, "device_id": 0x744C, "subsystem_id": 0x471E1002}
    memory = {"dedicated_video_memory": 20 << 30, "shared_system_memory": 16 << 30}
    row = {"description": "AMD Radeon RX 7900 XT", "flags": 0, **card, **memory}
    inside = {**row, "device_id": 0x164E, "dedicated_video_memory": 512 << 20}
    others = [{**row, "vendor_id": 0x10DE}, {**row, "vendor_id": 0x1414, "flags": 2}]
    told = [SimpleNamespace(**r) for r in (row, row, inside, *others)]
    found = arrange(gpus(told))
    assert len({gpu.id for gpu in found}) == len(found) == 3
    assert [gpu.is_offered for gpu in found] == [True, True, False]
    assert found[0].memory_total_mb == 20480.0


def test_directx_is_not_looked_for_elsewhere() -> None:
    assert AdapterDesc.flags.offset > AdapterDesc.luid.offset
    if os.name != "nt":
        assert WindowsProbe().read().absent is not None


def test_simulated_gpus_fill_up_while_somebody_holds_them(tmp_path: Path) -> None:
    probe = SimulatedProbe("2x24GB,1x8GB", "n1", tmp_path)
    cards = probe.read().gpus
    assert [card.memory_total_mb for card in cards] == [24576.0, 24576.0, 8192.0]
    assert all(card.is_simulated and "Simulated" in card.name for card in cards)
    with hold(tmp_path, cards[1].id, 6000.0):
        held = probe.read().gpus
        assert [card.memory_used_mb for card in held] == [0.0, 6000.0, 0.0]
        assert held[1].memory_free_mb == 18576.0
        assert [row.pid for row in held[1].processes] == [os.getpid()]
    assert probe.read().gpus == cards


def test_what_a_dead_process_held_is_free_again(tmp_path: Path) -> None:
    probe = SimulatedProbe("8GB", "n1", tmp_path)
    (card,) = probe.read().gpus
    unused = max(psutil.pids()) + 100_000
    write(tmp_path / card.id, **{f"{unused}-aa": 5000, "not-a-pid": "x"})
    assert probe.read().gpus[0].memory_free_mb == 8192.0


def test_simulated_gpus_of_two_nodes_are_different_ones(tmp_path: Path) -> None:
    one, two = (
        {gpu.id for gpu in SimulatedProbe("2x8GB", node, tmp_path).read().gpus}
        for node in ("n1", "n2")
    )
    assert len(one | two) == 4


@pytest.mark.skipif(os.name == "nt", reason="reads /sys")
def test_a_machine_without_cards_starts_no_probe(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert likely(tmp_path) == []
    machine.plug_nvidia()
    machine.plug_amd("0000:03:00.0")
    machine.plug_intel("0000:00:02.0", "0xa780")
    assert likely(tmp_path) == ["nvidia", "amd", "intel"]

"""AMD cards by each way: the tools' JSON, the kernel, and which way is taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corral.agent.probe import amd_sysfs
from corral.agent.probe.amd import AmdProbe
from corral.agent.probe.amd_tool import first_json, read_amd_smi, read_rocm_smi
from tests.unit.agent.probe.machine import RAPHAEL, Machine, recorded, write


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return machine


def test_rocm_smi_tells_a_card_with_its_memory_in_bytes() -> None:
    (card,) = read_rocm_smi(json.loads(recorded("rocm_smi_7900xt.json")))
    assert (card.name, card.compute) == ("Radeon RX 7900 XT", "gfx1100")
    assert card.memory_total_mb == 20464.0
    assert card.memory_used_mb == pytest.approx(26.57, abs=0.01)
    assert card.memory_free_mb == pytest.approx(20437.43, abs=0.01)
    assert not card.is_integrated


def test_rocm_smi_tells_the_graphics_of_a_processor_from_a_card() -> None:
    told = json.loads(recorded("rocm_smi_6800_raphael.json"))
    card, inside = read_rocm_smi(told)
    assert (card.id, card.is_integrated) == ("GPU-9246000000000001", False)
    assert (inside.id, inside.is_integrated) == ("0000:0d:00.0", True)


def test_rocm_smi_of_another_version_still_has_heat_power_and_use() -> None:
    (card,) = read_rocm_smi(json.loads(recorded("rocm_smi_780m.json")))
    assert (card.id, card.name) == ("0000:c4:00.0", "Phoenix3")
    assert (card.temperature_c, card.power_w) == (31.0, 7.222)
    assert card.utilization_percent == 19.0
    assert card.memory_total_mb is None
    assert card.memory_free_mb is None


def test_amd_smi_is_read_behind_its_warnings() -> None:
    static = first_json(recorded("amd_smi_static_7800xt.txt"))
    metric = json.loads(recorded("amd_smi_metric_7800xt.json"))
    (card,) = read_amd_smi(static, metric)
    assert (card.id, card.pci_address) == ("GPU-4162405e51bb99b0", "0000:03:00.0")
    assert (card.name, card.compute) == ("AMD Radeon RX 7800 XT", "gfx1101")
    assert (card.memory_total_mb, card.memory_used_mb) == (16368.0, 14569.0)
    assert card.memory_free_mb == 1799.0
    assert (card.utilization_percent, card.temperature_c) == (2.0, 41.0)


def test_amd_smi_of_the_older_shape_is_read_too() -> None:
    static = first_json(recorded("amd_smi_static_7800xt.txt"))["gpu_data"]
    (card,) = read_amd_smi(static, json.loads(recorded("amd_smi_metric_w7700.json")))
    assert card.utilization_percent == 42.0
    assert (card.memory_total_mb, card.memory_used_mb) == (16368.0, None)


@pytest.mark.parametrize("told", [None, [], {}, "x", {"gpu_data": None}, [1], {"a": 1}])
def test_strange_answers_of_the_tools_are_no_cards(told: object) -> None:
    assert read_amd_smi(told, told, told) == []
    assert read_rocm_smi(told) == []


def test_output_without_json_is_nothing() -> None:
    assert first_json("ERROR:root:Driver not initialized (amdgpu not found)") is None
    assert first_json("[not json\n{broken") is None


@pytest.mark.parametrize(
    ("version", "name"),
    [(90402, "gfx942"), (90010, "gfx90a"), (100306, "gfx1036"), (110501, "gfx1151")],
)
def test_the_kernels_number_of_a_target_becomes_its_name(
    version: int, name: str
) -> None:
    assert amd_sysfs.target(version) == name


def test_the_kernel_alone_tells_equal_cards_apart(machine: Machine) -> None:
    machine.plug_amd("0000:03:00.0", serial="9246000000000001")
    machine.plug_amd("0000:83:00.0", serial="9246000000000002")
    found = AmdProbe(machine.root / "sys").read()
    ids = [card.id for card in found.gpus]
    assert ids == ["GPU-9246000000000001", "GPU-9246000000000002"]
    assert {card.name for card in found.gpus} == {"AMD 0x73bf"}


def test_the_kernel_alone_tells_figures_and_processes(machine: Machine) -> None:
    machine.plug_amd("0000:0a:00.0", total=8573157376, used=6812925952)
    folder = machine.root / "sys/class/kfd/kfd/proc"
    write(folder / "4711", vram_40001=6000000000, vram_9=1)
    write(folder / "4712", vram_40001=0)
    (card,) = AmdProbe(machine.root / "sys").read().gpus
    assert card.id == card.pci_address == "0000:0a:00.0"
    assert card.memory_total_mb == pytest.approx(8176.0)
    assert card.memory_free_mb == pytest.approx(1678.7, abs=0.1)
    assert (card.temperature_c, card.power_w) == (41.0, 20.0)
    assert (card.utilization_percent, card.driver) == (3.0, "amdgpu")
    ((pid, used),) = [(row.pid, row.memory_mb) for row in card.processes]
    assert pid == 4711
    assert used == pytest.approx(5722.0, abs=0.1)


def test_names_come_from_the_lists_on_the_machine(machine: Machine) -> None:
    machine.plug_amd("0000:03:00.0")
    lines = "73BF,\tC0,\tAMD Radeon RX 6900 XT\n73BF,\tC1,\tAMD Radeon RX 6800 XT"
    write(machine.root / "usr/share/libdrm", **{"amdgpu.ids": lines})
    (card,) = AmdProbe(machine.root / "sys").read().gpus
    assert card.name == "AMD Radeon RX 6800 XT"


def test_graphics_without_a_compute_side_are_known_by_their_northbridge(
    machine: Machine,
) -> None:
    device = machine.plug_amd("0000:05:00.0", kind=("0x1638", "0xc8", 0))
    write(device / "hwmon/hwmon2", in1_label="vddnb")
    (card,) = AmdProbe(machine.root / "sys").read().gpus
    assert card.is_integrated
    assert card.shares_memory


def test_a_card_has_one_id_by_every_way(machine: Machine) -> None:
    machine.plug_amd("0000:03:00.0", serial="9246000000000001")
    machine.plug_amd("0000:0d:00.0", kind=RAPHAEL)
    alone = AmdProbe(machine.root / "sys").read().gpus
    told = json.loads(recorded("rocm_smi_6800_raphael.json"))
    told["card0"]["Unique ID"] = "N/A"
    del told["card1"]["GFX Version"]
    machine.add_tool("rocm-smi", f"echo '{json.dumps(told)}'")
    by_tool = AmdProbe(machine.root / "sys").read().gpus
    assert by_tool[0].name.startswith("Navi 21")
    assert [card.id for card in by_tool] == [card.id for card in alone]
    assert [card.is_integrated for card in by_tool] == [False, True]
    assert by_tool[0].temperature_c == 41.0


def test_amd_smi_is_asked_before_rocm_smi(machine: Machine) -> None:
    machine.add_tool("rocm-smi", "exit 1")
    static = recorded("amd_smi_static_7800xt.txt")
    machine.add_tool("amd-smi", f"[ $1 = static ] || exit 2\ncat <<'X'\n{static}\nX")
    machine.add_tool("cat", 'exec /bin/cat "$@"')
    (card,) = AmdProbe(machine.root / "sys").read().gpus
    assert card.memory_total_mb == 16368.0


def test_amds_own_binding_is_asked_first(machine: Machine) -> None:
    machine.add_tool("amd-smi", "exit 1")
    machine.plug_amd("0000:03:00.0", serial="9246000000000001")
    machine.plug_amd("0000:83:00.0", serial="9246000000000002")
    library = "tests.unit.agent.probe.standin_amdsmi"
    probe = AmdProbe(machine.root / "sys", library)
    one, two = probe.read().gpus
    probe.close()
    assert [one.id, two.id] == ["GPU-9246000000000001", "GPU-9246000000000002"]
    assert (one.name, one.compute) == ("AMD Radeon RX 6800 XT", "gfx1030")
    assert (one.memory_total_mb, one.memory_free_mb) == (16368.0, 15708.0)
    assert (one.power_w, one.temperature_c) == (35.0, 44.0)
    assert (one.utilization_percent, one.driver) == (12.0, "amdgpu 6.18.3")
    assert [(p.pid, p.name, p.memory_mb) for p in one.processes] == [
        (4711, "python3", 512.0)
    ]


def test_a_machine_without_amd_cards_says_so(machine: Machine) -> None:
    finding = AmdProbe(machine.root / "sys").read()
    assert (finding.gpus, finding.absent) == ((), "no AMD card with a driver")

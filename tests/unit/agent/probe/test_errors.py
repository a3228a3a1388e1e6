"""What cards tell of hardware errors, vendor by vendor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral.agent.probe import amd_sysfs
from corral.agent.probe.nvidia import NvidiaProbe
from corral.agent.probe.nvidia_error import KernelLog
from corral.agent.probe.simulated import SimulatedProbe
from tests.unit.agent.probe.machine import Machine, write
from tests.unit.agent.probe.standin_nvml import H200

STANDIN = "tests.unit.agent.probe.standin_nvml"
Read = Callable[..., dict[str, int]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Read:
    """The errors of the first card, read by one probe again and again."""
    file = tmp_path / "nvml.json"
    monkeypatch.setenv("STANDIN_NVML", str(file))
    probe = NvidiaProbe(STANDIN)

    def answer(**card: Any) -> dict[str, int]:
        file.write_text(json.dumps({"cards": [{**H200, **card}]}), encoding="utf-8")
        return dict(probe.read().gpus[0].errors)

    return answer


def test_counters_of_the_driver_are_told_and_those_it_lacks_are_left_out(
    read: Read,
) -> None:
    assert read(ecc=2, rows_pending=1) == {
        "ecc_uncorrected": 2,
        "rows_pending": 1,
        "rows_failed": 0,
        "thermal_slowdown": 0,
    }
    assert "ecc_uncorrected" not in read()


def test_xids_of_the_hardware_are_counted_and_those_of_applications_are_not(
    read: Read,
) -> None:
    assert "xid_79" not in read(xids=[])
    assert read(xids=[79, 13, 79])["xid_79"] == 2
    told = read(xids=[79, 13, 79, 48])
    assert (told["xid_79"], told["xid_48"]) == (2, 1)
    assert "xid_13" not in told


def test_only_beginnings_of_a_slowdown_count(read: Read) -> None:
    slowed = [read(is_slowed=n in (0, 2, 3, 5))["thermal_slowdown"] for n in range(6)]
    assert slowed == [0, 0, 1, 1, 1, 2]


def test_the_kernels_log_has_xids_where_the_library_has_none(tmp_path: Path) -> None:
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    log = KernelLog(pipe)
    log.open()
    assert list(log.read()) == []
    with pipe.open("w", encoding="utf-8") as kernel:
        kernel.write("4,1,2,-;NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off\n")
        kernel.write("6,2,3,-;usb 1-1: new device\n")
    assert list(log.read()) == [("0000:19:00", 79)]
    log.close()
    absent = KernelLog(tmp_path / "none")
    absent.open()
    assert list(absent.read()) == []


def test_uncorrected_errors_of_all_blocks_of_an_amd_card_are_added_up(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    device = machine.plug_amd("0000:03:00.0")
    machine.plug_amd("0000:83:00.0")
    write(device / "ras", umc_err_count="ue: 2\nce: 40", gfx_err_count="ue: 1\nce: 0")
    first, second = amd_sysfs.read(machine.root / "sys")
    assert (dict(first.errors), dict(second.errors)) == ({"ras_uncorrected": 3}, {})


def test_simulated_cards_have_the_errors_they_are_given_and_may_go(
    tmp_path: Path,
) -> None:
    probe = SimulatedProbe("2x8GB", "n1", tmp_path)
    first, second = (gpu.id for gpu in probe.read().gpus)
    (tmp_path / f"{first}.errors").write_text('{"xid_79": 2}', encoding="utf-8")
    (tmp_path / f"{second}.errors").write_text("{half", encoding="utf-8")
    assert [dict(gpu.errors) for gpu in probe.read().gpus] == [{"xid_79": 2}, {}]
    (tmp_path / f"{second}.gone").touch()
    assert [gpu.id for gpu in probe.read().gpus] == [first]

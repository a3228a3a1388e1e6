"""All vendors together, and what a library does to the others when it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.agent.gpu_policy import GpuPolicy
from corral.agent.probe.probe_process import ProbeChild
from corral.agent.probe.simulated import SimulatedProbe
from corral.agent.watch.gpus import GpuWatch
from corral.core.nodes.gpu import Gpu
from corral.worker.runner.gpu_memory import hold
from tests.unit.agent.probe.machine import RAPHAEL, SRC, Machine
from tests.unit.agent.probe.standin_nvml import H200

HANG = "import threading\nthreading.Event().wait(300)\n"
Watch = Callable[..., GpuWatch]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Two equal AMD cards, one NVIDIA card, and the graphics of an AMD processor."""
    machine = Machine(tmp_path / "machine")
    machine.plug_amd("0000:03:00.0", serial="9246000000000001")
    machine.plug_amd("0000:83:00.0", serial="9246000000000002")
    machine.plug_amd("0000:0d:00.0", kind=RAPHAEL, total=67108864, used=26079232)
    machine.plug_nvidia()
    return machine


@pytest.fixture
def watch(machine: Machine, tmp_path: Path) -> Iterator[Watch]:
    started: list[GpuWatch] = []

    def start(
        policy: GpuPolicy | None = None, rung: threading.Event | None = None
    ) -> GpuWatch:
        one = GpuWatch(
            policy or GpuPolicy(timeout_s=30.0),
            "n1",
            tmp_path,
            machine.environment,
            machine.root,
            on_news=rung.set if rung else lambda: None,
        )
        started.append(one)
        one.start()
        return one

    yield start
    for one in started:
        one.stop()


def heard_first(rung: threading.Event) -> None:
    """The first reading is news, too; what rings from now on is another."""
    assert rung.wait(60.0)
    rung.clear()


def cards(watch: GpuWatch, timeout_s: float = 60.0) -> list[Gpu]:
    assert watch.wait(timeout_s)
    latest = watch.latest()
    assert latest is not None
    return latest[1]


def offered(gpus: list[Gpu]) -> list[str]:
    return [gpu.id for gpu in gpus if gpu.is_offered]


@pytest.mark.spec("A9")
def test_a_mixed_machine_offers_three_cards_and_not_the_processors_graphics(
    watch: Watch,
) -> None:
    found = cards(watch())
    assert offered(found) == [
        H200["uuid"],
        "GPU-9246000000000001",
        "GPU-9246000000000002",
    ]
    assert [gpu.index for gpu in found] == [0, 1, 2, 3]
    (inside,) = [gpu for gpu in found if gpu.is_integrated]
    assert inside.id == "0000:0d:00.0"
    assert not inside.is_offered


@pytest.mark.parametrize(
    "trouble",
    [{"raises": "Unknown Error"}, {"dies": True}, {"missing": True}, {"hangs_s": 300}],
)
def test_a_failing_nvidia_library_hides_no_amd_card(
    machine: Machine, watch: Watch, trouble: dict[str, object]
) -> None:
    machine.plug_nvidia(**trouble)
    one = watch(GpuPolicy(timeout_s=3.0))
    found = cards(one)
    assert offered(found) == ["GPU-9246000000000001", "GPU-9246000000000002"]
    assert "nvidia" in one.faults()


@pytest.mark.parametrize("code", [HANG, "raise KeyError('libamd_smi.so')", "x ="])
def test_a_failing_amd_library_leaves_its_cards_to_the_kernel(
    machine: Machine, watch: Watch, code: str
) -> None:
    machine.add_library("amdsmi", code)
    assert len(offered(cards(watch(GpuPolicy(timeout_s=3.0))))) == 3


def test_a_missing_nvidia_library_is_said(machine: Machine, watch: Watch) -> None:
    machine.add_library("pynvml", "raise ImportError")
    one = watch()
    assert len(offered(cards(one))) == 2
    assert one.faults() == {"nvidia": "the package nvidia-ml-py is not installed"}


def test_what_a_library_prints_does_not_reach_the_answer(
    machine: Machine, watch: Watch
) -> None:
    machine.plug_nvidia(prints=True)
    assert len(offered(cards(watch()))) == 3


def test_a_card_that_cannot_be_read_any_more_stays_named_and_is_not_offered(
    machine: Machine, watch: Watch
) -> None:
    rung = threading.Event()
    one = watch(GpuPolicy(timeout_s=30.0, look_s=0.05), rung)
    assert len(offered(cards(one))) == 3
    one.sample_s = 0.05
    heard_first(rung)
    machine.plug_nvidia(is_lost=True)
    assert rung.wait(60.0)
    failed = cards(one)[0]
    assert (failed.id, failed.is_offered) == (H200["uuid"], False)
    assert "version mismatch" in str(failed.error)
    rung.clear()
    machine.plug_nvidia(driver="590.10")
    assert rung.wait(60.0)
    assert len(offered(cards(one))) == 3
    assert cards(one)[0].driver == "590.10"


def test_a_card_that_goes_is_news(machine: Machine, watch: Watch) -> None:
    rung = threading.Event()
    one = watch(GpuPolicy(timeout_s=30.0, look_s=0.05), rung)
    assert len(offered(cards(one))) == 3
    heard_first(rung)
    (machine.root / "sys/class/drm/card1/device/vendor").unlink()
    assert rung.wait(60.0)
    assert offered(cards(one)) == [H200["uuid"], "GPU-9246000000000001"]


def test_only_chosen_cards_are_offered(watch: Watch) -> None:
    one = watch(GpuPolicy(devices=("1", "0000:0d:00.0"), timeout_s=30.0))
    assert offered(cards(one)) == ["GPU-9246000000000001", "0000:0d:00.0"]
    assert offered(cards(watch(GpuPolicy(devices=(), timeout_s=30.0)))) == []


def test_memory_somebody_takes_is_news_before_the_next_sample(
    machine: Machine, watch: Watch, tmp_path: Path
) -> None:
    rung = threading.Event()
    one = watch(GpuPolicy(simulated="24GB", timeout_s=30.0, look_s=0.05), rung)
    (card,) = [gpu for gpu in cards(one) if gpu.is_simulated]
    number = (one.latest() or (0, []))[0]
    heard_first(rung)
    with hold(tmp_path / "simulated", card.id, 9000.0):
        assert rung.wait(60.0)
        latest = one.latest()
        assert latest is not None
        assert latest[0] > number
        (held,) = [gpu for gpu in latest[1] if gpu.is_simulated]
        assert held.memory_free_mb == 15576.0
        assert [(row.pid, row.is_ours) for row in held.processes] == [
            (os.getpid(), True)
        ]


def test_a_simulated_card_is_as_busy_as_its_file_says(tmp_path: Path) -> None:
    probe = SimulatedProbe("24GB", "n", tmp_path)
    (card,) = probe.read().gpus
    assert card.utilization_percent == 0.0
    for text, busy in (("71", 71.0), ("300", 100.0), ("half wri", 0.0)):
        (tmp_path / f"{card.id}.busy").write_text(text, encoding="ascii")
        (card,) = probe.read().gpus
        assert card.utilization_percent == busy


def test_a_hanging_probe_is_ended_and_met_anew(machine: Machine) -> None:
    machine.plug_nvidia(hangs_s=300)
    child = ProbeChild("nvidia", 1.0, machine.environment, machine.root)
    assert child.ask().fault == "it did not answer within 1 s"
    machine.plug_nvidia()
    child = ProbeChild("nvidia", 30.0, machine.environment, machine.root)
    finding = child.ask().finding
    assert finding is not None
    assert len(finding.gpus) == 1
    child.close()


def test_a_probe_asked_by_hand_answers_once(machine: Machine) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "corral.agent.probe", "nvidia", "--once"],
        env=machine.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(said.stdout)["gpus"][0]["id"] == H200["uuid"]


def test_probes_need_neither_celery_nor_the_web_framework() -> None:
    code = (
        "import sys; import corral.agent.watch.gpus, corral.agent.probe.__main__;"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(said.stdout.split()) - set(sys.stdlib_module_names)
    assert not loaded & {"celery", "fastapi", "pydantic", "httpx", "pynvml", "amdsmi"}

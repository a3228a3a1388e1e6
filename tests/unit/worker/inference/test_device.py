"""Which devices are used, by what the libraries say is there."""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType, SimpleNamespace

import pytest

from corral.worker.inference.errors import RequestRefused
from corral.worker.inference.load.device import CPU, Device, choose_dtype, find_devices
from corral.worker.runner.gpu_memory import CARDS

CUDA = [Device("cuda", "cuda:0", 0), Device("cuda", "cuda:1", 1)]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any, whatever the tests run on."""
    monkeypatch.delenv(CARDS, raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)


def has_cards(monkeypatch: pytest.MonkeyPatch, *, hip: str | None = None) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.version.hip", hip)
    properties = [SimpleNamespace(uuid="aa-0"), SimpleNamespace(uuid="bb-1")]
    monkeypatch.setattr("torch.cuda.get_device_properties", properties.__getitem__)


def has_directml(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("torch_directml")
    library.__spec__ = importlib.machinery.ModuleSpec("torch_directml", None)
    library.device_count = lambda: 1  # type: ignore[attr-defined]
    library.device = lambda index: f"privateuseone:{index}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_directml", library)


def test_the_best_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_devices() == [CPU]
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    assert find_devices() == [Device("mps", "mps")]
    has_directml(monkeypatch)
    (found,) = find_devices()
    assert (found.kind, found.name) == ("directml", "privateuseone:0")
    assert choose_dtype(found) == "float16"
    has_cards(monkeypatch)
    assert find_devices() == CUDA
    assert find_devices("cpu") == [CPU]


def test_rocm_answers_to_the_names_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    has_cards(monkeypatch, hip="6.2")
    found = find_devices("rocm")
    assert [(one.kind, one.name) for one in found] == [
        ("rocm", "cuda:0"),
        ("rocm", "cuda:1"),
    ]
    with pytest.raises(RequestRefused, match="device cuda is not there; found: rocm"):
        find_devices("cuda")


@pytest.mark.parametrize(
    ("allowed", "found"),
    [(["1"], CUDA[1:]), (["GPU-AA"], CUDA[:1]), (["0", "bb"], CUDA), ([], [CPU])],
)
def test_only_the_cards_that_are_named_are_used(
    monkeypatch: pytest.MonkeyPatch, allowed: list[str], found: list[Device]
) -> None:
    has_cards(monkeypatch)
    assert find_devices(allowed=allowed) == found
    # Who was given cards of his own sees no others anyhow.
    monkeypatch.setenv(CARDS, "GPU-aa,GPU-bb")
    if allowed:
        assert find_devices(allowed=allowed) == CUDA

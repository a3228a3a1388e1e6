"""The strategy of the settings is the one a manager is made with."""

from __future__ import annotations

import pytest

from corral.cli.serve.config import manager_config
from corral.errors import SettingsError
from corral.settings import load


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CORRAL_STRATEGY", "CORRAL_EVICTION"):
        monkeypatch.delenv(name, raising=False)


def test_smith_and_gdsf_are_what_nobody_has_to_ask_for() -> None:
    policy = manager_config(load(), b"secret").policy
    assert (policy.strategy, policy.is_lru) == ("smith", False)


@pytest.mark.parametrize("name", ["least_loaded", "weighted_round_robin", "affinity"])
def test_a_manager_follows_the_strategy_it_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_STRATEGY", name)
    monkeypatch.setenv("CORRAL_EVICTION", "lru")
    policy = manager_config(load(), b"secret").policy
    assert (policy.strategy, policy.is_lru) == (name, True)


@pytest.mark.parametrize(
    ("variable", "allowed"),
    [
        ("CORRAL_STRATEGY", "smith, least_loaded, weighted_round_robin, affinity"),
        ("CORRAL_EVICTION", "gdsf, lru"),
    ],
)
def test_a_name_nobody_knows_is_refused_with_those_there_are(
    variable: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "best")
    with pytest.raises(SettingsError) as refused:
        load()
    line = str(refused.value)
    assert line.startswith(f"{variable}='best'")
    assert line.endswith(f"it must be one of {allowed}")

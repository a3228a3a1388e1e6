"""Sealed values: opened by the same key and name, by nothing else."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.manager.access.secrets import Seal, Unsealable

KEY = bytes(range(32))
VALUE = "s3cr3t-Value/42"


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_what_was_sealed_comes_back(value: str) -> None:
    assert Seal(KEY).open("NAME", Seal(KEY).close("NAME", value)) == value


def test_the_same_value_is_sealed_differently_every_time() -> None:
    seal = Seal(KEY)
    sealed = {seal.close("NAME", VALUE) for _ in range(20)}
    assert len(sealed) == 20
    assert not [text for text in sealed if VALUE in text]
    raw = [base64.b64decode(text.removeprefix("1:")) for text in sealed]
    assert not [data for data in raw if VALUE.encode() in data]


def test_another_cluster_secret_opens_nothing() -> None:
    sealed = Seal(KEY).close("NAME", VALUE)
    with pytest.raises(Unsealable) as caught:
        Seal(KEY[::-1]).open("NAME", sealed)
    assert VALUE not in str(caught.value)


def test_a_row_cannot_stand_for_another_name() -> None:
    seal = Seal(KEY)
    with pytest.raises(Unsealable):
        seal.open("OTHER", seal.close("NAME", VALUE))


@pytest.mark.parametrize("position", [2, 10, -4])
def test_a_changed_row_does_not_open(position: int) -> None:
    seal = Seal(KEY)
    sealed = seal.close("NAME", VALUE)
    old = sealed[position]
    changed = list(sealed)
    changed[position] = "A" if old != "A" else "B"
    with pytest.raises(Unsealable):
        seal.open("NAME", "".join(changed))


@pytest.mark.parametrize("text", ["", "1:", "1:AAAA", "1:***", "nonsense"])
def test_what_was_never_sealed_does_not_open(text: str) -> None:
    with pytest.raises(Unsealable):
        Seal(KEY).open("NAME", text)

"""A stand-in manager and clients that talk to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral.client import Client, Patience
from tests.unit.client.sample_code import load as load
from tests.unit.client.sample_code import objects as objects
from tests.unit.client.stand_in import StandIn, serve


@pytest.fixture
def manager() -> Iterator[StandIn]:
    with serve() as stand_in:
        yield stand_in


@pytest.fixture
def client(manager: StandIn) -> Iterator[Client]:
    patience = Patience(total_s=5.0, first_s=5.0)
    with Client(manager.url, "corral_k_s", patience=patience) as client:
        yield client

"""A cluster as anybody starts it, and a key of every role to attack it with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.acceptance.cluster import ECHO, Cluster

ROLES = ("read", "submit", "operate", "admin")


@dataclass(frozen=True)
class Attacked:
    """`keys` by role; what is broken on it, the next test finds broken."""

    cluster: Cluster
    keys: dict[str, str]

    def http(self, role: str | None = None, **headers: str) -> httpx.Client:
        """Plain HTTP with the key of a role, or without any."""
        if role is not None:
            headers["Authorization"] = f"Bearer {self.keys[role]}"
        return httpx.Client(
            base_url=self.cluster.url, headers=headers, timeout=60, trust_env=False
        )


def with_keys(cluster: Cluster) -> Attacked:
    create = cluster.client.create_key
    return Attacked(
        cluster, {role: create(f"{role}s", role=role).key for role in ROLES}
    )


@pytest.fixture(scope="session")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    started = Cluster.start(tmp_path_factory.mktemp("attacked"), [ECHO])
    try:
        started.serving("echo")
        yield with_keys(started)
    finally:
        started.stop()

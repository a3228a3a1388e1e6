"""A cluster as anybody starts it, and a key of every role to attack it with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from corral.agent.worker_option import DEFAULTS
from tests.acceptance.cluster import Cluster

CANARY = "canary-of-an-index"
MACHINES_OWN = "canary-of-the-machine"
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
    keys = {role: create(f"a-{role}", role=role).key for role in ROLES}
    return Attacked(cluster, keys)


@pytest.fixture(scope="session")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    started = Cluster.start(
        tmp_path_factory.mktemp("attacked"),
        DEFAULTS,
        # As a machine has it that may do more than run tasks.
        AWS_SECRET_ACCESS_KEY=MACHINES_OWN,
        # An index of the administrator's, with its password.
        UV_INDEX="corp=http://127.0.0.1:9/simple",
        UV_INDEX_STRATEGY="first-index",
        UV_INDEX_CORP_PASSWORD=CANARY,
        UV_EXTRA_INDEX_URL=f"http://user:{CANARY}@127.0.0.1:9/simple",
    )
    try:
        started.serving("echo")
        started.serving("run_script")
        yield with_keys(started)
    finally:
        started.stop()

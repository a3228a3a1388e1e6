"""One ordinary cluster for the tests that only use it, and break nothing for long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.cluster import ECHO, SLEEP, Cluster


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster.start(tmp_path_factory.mktemp("shared"), [ECHO, f"{SLEEP}x2"])
    try:
        started.serving("echo")
        started.serving("sleep")
        yield started
    finally:
        started.stop()

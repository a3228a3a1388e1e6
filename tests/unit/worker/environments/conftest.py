"""A cache and a repository of their own for every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.worker.environments.cache import Cache
from tests.unit.worker.environments.repository import LARGE, Repository


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", LARGE)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")

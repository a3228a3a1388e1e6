"""The embedded stores under each CPython we promise, from wheels alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.pythons import VERSIONS, check, find


@pytest.mark.parametrize("version", VERSIONS)
def test_both_stores_start_under(version: str, tmp_path: Path) -> None:
    interpreter = find(version)
    if interpreter is None:
        pytest.skip(f"CPython {version} is not on this machine")
    said = check(interpreter, tmp_path)
    assert said.startswith("PostgreSQL 18")
    assert "Redis from wheel" in said
    assert "stand-in starts" in said

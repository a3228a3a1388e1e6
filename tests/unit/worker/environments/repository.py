"""Real Git repositories, made in a test, and what its tests share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from corral.core.tasks.environment import GitEnvironment
from corral.errors import EnvironmentFailed
from corral.worker.environments.cache import Cache
from corral.worker.environments.policy import EnvironmentPolicy
from corral.worker.environments.prepare import Prepared, prepare

LOCAL = EnvironmentPolicy(allow_file=True, git_timeout_s=30.0, build_timeout_s=100.0)
LARGE = 1 << 30


class Repository:
    """A folder under Git; `url` names it the way a user would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        # Without sample hooks, which would be copied with each test's repository.
        self.git("init", "-q", "-b", "main", "--template=")

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        allowed = ("-c", "protocol.file.allow=always")
        done = subprocess.run(
            ["git", *identity, *allowed, *words],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull},
            check=True,
            capture_output=True,
        )
        return done.stdout.decode().strip()

    def commit(self, files: Mapping[str, str] | None = None) -> str:
        """Write these files, commit all there is, and say its name."""
        for name, text in (files or {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", "more")
        return self.git("rev-parse", "HEAD")


def refuse(digest: str) -> bytes:
    """For environments that fetch no object."""
    raise AssertionError(digest)


def left_behind(cache: Cache) -> list[str]:
    """What is in a cache beside its counters, its library and Git repositories."""
    kinds = ("tree", "venv", "work")
    return sorted(
        f"{kind}/{path.name}"
        for kind in kinds
        if (cache.folder / kind).is_dir()
        for path in (cache.folder / kind).iterdir()
    )


def make(
    cache: Cache, wanted: GitEnvironment, policy: EnvironmentPolicy = LOCAL
) -> Prepared:
    return prepare(wanted, cache=cache, fetch=refuse, policy=policy)


def failure(call: Callable[[], object], cache: Cache) -> EnvironmentFailed:
    """A failure in one line, that has left nothing but the clone."""
    with pytest.raises(EnvironmentFailed) as caught:
        call()
    assert "\n" not in caught.value.message
    assert [left for left in left_behind(cache) if not left.startswith("tree/")] == []
    return caught.value

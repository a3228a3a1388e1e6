"""Tokens an administrator gave for a host, with a real server that asks for them."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from corral.core.tasks.environment import GitEnvironment
from corral.worker.environments.cache import Cache
from corral.worker.environments.policy import EnvironmentPolicy
from tests.integration.git_server import Seen, make_certificate, serve
from tests.unit.worker.environments.repository import (
    LARGE,
    Repository,
    failure,
    make,
)

HERE = EnvironmentPolicy(git_allow=("localhost",))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", LARGE)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def secret_server(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Seen, Path, Path]:
    certificate, key = make_certificate(tmp_path)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
    basic = b64encode(b"x-access-token:t0ps3cret").decode()
    return Seen(wanted=f"Basic {basic}"), certificate, key


def test_a_token_reaches_its_host_and_shows_nowhere_else(
    cache: Cache,
    repository: Repository,
    secret_server: tuple[Seen, Path, Path],
) -> None:
    seen, certificate, key = secret_server
    repository.commit({"one": ""})
    with serve(repository.folder.parent, certificate, key, seen) as host:
        wanted = GitEnvironment(f"https://{host}/repository/.git")
        policy = replace(HERE, git_tokens={host: "t0ps3cret"})
        with make(cache, wanted, policy) as made:
            assert (made.root / "one").exists()
            assert "t0ps3cret" not in repr(made)
        bare = Cache(cache.folder.with_name("other"), LARGE)
        refused = failure(lambda: make(bare, wanted, HERE), bare)
        wrong = replace(HERE, git_tokens={host: "user:wr0ng"})
        mistaken = failure(lambda: make(bare, wanted, wrong), bare)
    assert seen.wanted in seen.authorizations
    assert any("git-remote-https" in word for word in seen.arguments)
    assert not [word for word in seen.arguments if "t0ps3cret" in word]
    assert "ls-remote" in refused.message
    assert "wr0ng" not in mistaken.message + mistaken.output
    kept = [path for path in cache.folder.rglob("*") if path.is_file()]
    assert not [path for path in kept if b"t0ps3cret" in path.read_bytes()]


def test_neither_git_nor_its_token_follows_a_redirect_to_another_host(
    cache: Cache,
    repository: Repository,
    secret_server: tuple[Seen, Path, Path],
) -> None:
    seen, certificate, key = secret_server
    repository.commit({"one": ""})
    first, second = Seen(), Seen(wanted=seen.wanted)
    root = repository.folder.parent
    with (
        serve(root, certificate, key, first) as host,
        serve(root, certificate, key, second) as other,
    ):
        first.send_to = f"https://{other}"
        wanted = GitEnvironment(f"https://{host}/repository/.git")
        policy = replace(HERE, git_tokens={host: "t0ps3cret"})
        failure(lambda: make(cache, wanted, policy), cache)
    assert second.authorizations == []

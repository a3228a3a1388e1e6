"""Whoever may submit names a repository: which hosts a node calls for that, and how."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.core.tasks.environment import GitEnvironment
from corral.errors import EnvironmentFailed
from corral.worker.environments import git
from corral.worker.environments.cache import Cache
from corral.worker.environments.policy import PUBLIC, EnvironmentPolicy
from tests.integration.git_server import Seen, make_certificate, serve
from tests.unit.worker.environments.repository import LARGE, LOCAL, Repository

PLAIN = EnvironmentPolicy()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", LARGE)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "served" / "repository")
    made.commit({"one": ""})
    return made


@pytest.fixture
def server(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Seen]]:
    """A repository of this network's own: its host, and what was asked of it."""
    certificate, key = make_certificate(tmp_path)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
    seen = Seen()
    with serve(repository.folder.parent, certificate, key, seen) as host:
        yield host, seen


def fetched(
    cache: Cache, wanted: GitEnvironment, policy: EnvironmentPolicy
) -> set[str]:
    repository = git.Repository(wanted, cache, policy)
    with repository.tree(repository.resolve()) as tree:
        return {path.name for path in tree.path.iterdir()}


def refusal(cache: Cache, wanted: GitEnvironment, policy: EnvironmentPolicy) -> str:
    with pytest.raises(EnvironmentFailed) as caught:
        fetched(cache, wanted, policy)
    return caught.value.message


def test_m8_host_inside_the_nodes_network_is_not_called(
    cache: Cache, server: tuple[str, Seen]
) -> None:
    host, seen = server
    wanted = GitEnvironment(f"https://{host}/repository/.git")
    said = refusal(cache, wanted, PLAIN)
    assert "localhost is inside a private network" in said
    assert "CORRAL_GIT_ALLOW" in said
    assert seen.authorizations == []
    for entry in ("localhost", host):
        listed = replace(PLAIN, git_allow=(PUBLIC, entry))
        assert "one" in fetched(cache, wanted, listed)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:1/x",
        "https://10.0.0.1/x",
        "https://[fd00:0:0:0:0:0:0:1]/x",
        "https://[0:0:0:0:0:ffff:192.168.0.1]/x",
        "https://169.254.169.254/x",
        "ssh://git@10.0.0.1/x",
        "git@10.0.0.1:x",
    ],
)
def test_m8_private_address_is_known_in_every_spelling(cache: Cache, url: str) -> None:
    policy = replace(PLAIN, ssh_key="/key")
    said = refusal(cache, GitEnvironment(url), policy)
    assert "private network" in said or "metadata" in said


def test_m8_list_without_public_hosts_is_the_whole_list(cache: Cache) -> None:
    policy = replace(PLAIN, git_allow=("git.lan",))
    said = refusal(cache, GitEnvironment("https://93.184.216.34/x"), policy)
    assert said.endswith("93.184.216.34 is not in CORRAL_GIT_ALLOW")


def test_m8_submodule_leads_to_no_other_host(
    cache: Cache, repository: Repository, server: tuple[str, Seen]
) -> None:
    host, seen = server
    url = f"https://{host}/repository/.git"
    repository.git("config", "-f", ".gitmodules", "submodule.in.path", "in")
    repository.git("config", "-f", ".gitmodules", "submodule.in.url", url)
    commit = repository.git("rev-parse", "HEAD")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},in")
    repository.git("add", ".gitmodules")
    repository.git("commit", "-qm", "in")
    wanted = GitEnvironment(repository.url, submodules=True)
    assert "private network" in refusal(cache, wanted, LOCAL)
    assert seen.authorizations == []
    listed = replace(LOCAL, git_allow=("localhost",))
    assert "in" in fetched(cache, wanted, listed)


def test_m8_redirect_is_not_followed(
    cache: Cache, server: tuple[str, Seen], tmp_path: Path
) -> None:
    host, seen = server
    inside = Seen()
    files = tmp_path / "tls.pem", tmp_path / "tls.key"
    with serve(tmp_path / "served", *files, inside) as other:
        seen.send_to = f"https://{other}"
        policy = replace(PLAIN, git_allow=(host,))
        wanted = GitEnvironment(f"https://{host}/repository/.git")
        said = refusal(cache, wanted, policy)
    assert "redirects are not followed" in said
    assert inside.authorizations == []


def test_m8_name_means_to_git_what_it_meant_when_it_was_judged(
    cache: Cache, server: tuple[str, Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git finds a name that only we can resolve: it cannot look it up anew."""
    host, _ = server
    plain = socket.getaddrinfo

    def look(name: str, *more: Any, **named: Any) -> Any:
        return plain("127.0.0.1" if name == "once.invalid" else name, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look)
    url = f"https://once.invalid:{host.partition(':')[2]}/repository/.git"
    policy = replace(PLAIN, git_allow=("once.invalid",))
    said = refusal(cache, GitEnvironment(url), policy)
    assert "resolve" not in said
    assert "certificate" in said


def test_m8_ssh_takes_the_key_of_the_setting_and_nothing_of_the_account(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = tmp_path / "called"
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s " "$@" >> {called}\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    wanted = GitEnvironment("git@127.0.0.1:x")
    open_policy = replace(PLAIN, git_allow=("127.0.0.1",))
    assert "CORRAL_GIT_SSH_KEY" in refusal(cache, wanted, open_policy)
    assert not called.exists()
    refusal(cache, wanted, replace(open_policy, ssh_key="/the key"))
    words = called.read_text()
    assert words.startswith("-F none ")
    assert "-i /the key " in words
    for option in ("IdentitiesOnly=yes", "IdentityAgent=none", "BatchMode=yes"):
        assert f"-o{option} " in words


def test_m8_clone_that_grows_too_large_is_ended_and_removed(
    cache: Cache, repository: Repository
) -> None:
    (repository.folder / "large").write_bytes(os.urandom(3 << 20))
    repository.commit()
    policy = replace(LOCAL, git_limit_bytes=1 << 20)
    said = refusal(cache, GitEnvironment(repository.url), policy)
    assert said.endswith("brings more than 1048576 bytes (CORRAL_GIT_LIMIT_GB)")
    assert not list(cache.folder.glob("git/*/content"))


def test_m8_files_that_grow_too_large_when_they_are_unpacked_are_refused(
    cache: Cache, repository: Repository
) -> None:
    (repository.folder / "zeros").write_bytes(bytes(20 << 20))
    repository.commit()
    policy = replace(LOCAL, git_limit_bytes=4 << 20)
    assert "CORRAL_GIT_LIMIT_GB" in refusal(
        cache, GitEnvironment(repository.url), policy
    )


def test_m8_large_files_come_only_from_hosts_that_are_named(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server of a repository says where each of them is."""
    (tmp_path / "git-lfs").write_text("#!/bin/sh\n")
    (tmp_path / "git-lfs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wanted = GitEnvironment("https://93.184.216.34/x", lfs=True)
    assert "public,93.184.216.34" in refusal(cache, wanted, PLAIN)

"""Environments from Git, with the real program and repositories on this disk."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from corral.core.tasks.environment import GitEnvironment
from corral.errors import EnvironmentFailed
from corral.worker.environments import git
from corral.worker.environments.cache import Cache
from corral.worker.environments.policy import EnvironmentPolicy
from tests.unit.worker.environments.conftest import cache, repository
from tests.unit.worker.environments.repository import (
    LOCAL,
    Repository,
    left_behind,
)

__all__ = ["cache", "repository"]


def files(
    cache: Cache, wanted: GitEnvironment, policy: EnvironmentPolicy = LOCAL
) -> set[str]:
    """Every file of what is fetched, by its name."""
    repository = git.Repository(wanted, cache, policy)
    with repository.tree(repository.resolve()) as tree:
        found = [path for path in tree.path.rglob("*") if not path.is_dir()]
        return {path.relative_to(tree.path).as_posix() for path in found}


def resolve(
    cache: Cache, wanted: GitEnvironment, policy: EnvironmentPolicy = LOCAL
) -> str:
    return git.Repository(wanted, cache, policy).resolve()


def failure(
    cache: Cache, wanted: GitEnvironment, policy: EnvironmentPolicy = LOCAL
) -> str:
    """The one line a failure is told in; it has left nothing."""
    with pytest.raises(EnvironmentFailed) as caught:
        files(cache, wanted, policy)
    assert left_behind(cache) == []
    assert "\n" not in caught.value.message
    return caught.value.message


def test_default_branch_branch_tag_and_commit_are_found(
    cache: Cache, repository: Repository
) -> None:
    first = repository.commit({"one": ""})
    repository.git("tag", "plain")
    repository.git("tag", "-a", "-m", "a", "full")
    repository.git("branch", "side/way")
    last = repository.commit({"two": ""})
    url = repository.url
    assert resolve(cache, GitEnvironment(url)) == last
    assert resolve(cache, GitEnvironment(url, branch="main")) == last
    for name in ("side/way", "plain", "full"):
        assert resolve(cache, GitEnvironment(url, branch=name)) == first
    for length in (7, 20, 40):
        assert resolve(cache, GitEnvironment(url, commit=first[:length])) == first


def test_a_pinned_commit_counts_before_a_branch(
    cache: Cache, repository: Repository
) -> None:
    first = repository.commit({"one": ""})
    repository.commit({"two": ""})
    pinned = GitEnvironment(repository.url, branch="main", commit=first)
    assert files(cache, pinned) == {"one"}


def test_a_moved_branch_is_fetched_into_the_same_clone(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"one": "1"})
    wanted = GitEnvironment(repository.url, branch="main")
    assert files(cache, wanted) == {"one"}
    repository.commit({"two": "2"})
    assert files(cache, wanted) == {"one", "two"}
    counted = cache.counters()
    assert (counted["clones"], counted["fetches"]) == (1, 1)


def test_a_known_commit_needs_no_repository(
    cache: Cache, repository: Repository
) -> None:
    commit = repository.commit({"one": ""})
    wanted = GitEnvironment(repository.url, commit=commit)
    files(cache, wanted)
    repository.folder.rename(repository.folder.with_name("away"))
    assert files(cache, wanted) == {"one"}
    assert cache.counters()["clones"] == 1


def test_an_evicted_tree_is_made_again_from_the_clone(
    cache: Cache, repository: Repository
) -> None:
    commit = repository.commit({"one": "1" * 5000})
    wanted = GitEnvironment(repository.url, commit=commit)
    files(cache, wanted)
    [done] = (cache.folder / "tree").glob("*/done")
    os.utime(done, (1, 1))
    Cache(cache.folder, cache.size_bytes() - 1).evict()
    assert left_behind(cache) == []
    repository.folder.rename(repository.folder.with_name("away"))
    assert files(cache, wanted) == {"one"}


def test_a_commit_behind_a_shallow_clone_is_found(
    cache: Cache, repository: Repository
) -> None:
    first = repository.commit({"one": ""})
    repository.commit({"two": ""})
    assert files(cache, GitEnvironment(repository.url)) == {"one", "two"}
    assert files(cache, GitEnvironment(repository.url, commit=first[:10])) == {"one"}


def test_trees_have_modes_and_links_but_nothing_of_git(
    cache: Cache, repository: Repository
) -> None:
    (repository.folder / "link").symlink_to("run.sh")
    (repository.folder / "run.sh").write_text("#!/bin/sh\n")
    (repository.folder / "run.sh").chmod(0o755)
    repository.commit()
    wanted = git.Repository(GitEnvironment(repository.url), cache, LOCAL)
    with wanted.tree(wanted.resolve()) as tree:
        assert sorted(path.name for path in tree.path.iterdir()) == ["link", "run.sh"]
        assert os.access(tree.path / "run.sh", os.X_OK)
        assert os.readlink(tree.path / "link") == "run.sh"
        assert not tree.path.stat().st_mode & 0o222


def test_what_does_not_exist_is_told_in_one_line(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"one": ""})
    url = repository.url
    assert "nowhere" in failure(cache, GitEnvironment(f"{url}/nowhere"))
    no_branch = failure(cache, GitEnvironment(url, branch="gone"))
    assert no_branch == f"{url} has no branch or tag 'gone'"
    for commit in ("abcdef0", "a" * 40):
        said = failure(cache, GitEnvironment(url, commit=commit))
        assert said == f"{url} has no commit {commit}"


def test_an_empty_repository_has_no_commits(
    cache: Cache, repository: Repository
) -> None:
    said = failure(cache, GitEnvironment(repository.url))
    assert said == f"{repository.url} has no commits"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "sub/../.."])
def test_a_link_that_leads_out_refuses_the_tree(
    cache: Cache, repository: Repository, target: str
) -> None:
    (repository.folder / "link").symlink_to(target)
    repository.commit({"sub/one": ""})
    said = failure(cache, GitEnvironment(repository.url))
    assert said == f"'link' is a link that leads out, to {target!r}"


def test_hooks_and_filters_of_a_repository_are_never_run(
    cache: Cache, repository: Repository, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    hook = f"#!/bin/sh\ntouch {ran}\n"
    repository.commit({"one": "", ".gitattributes": "one filter=evil\n"})
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        path = repository.folder / ".git" / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(hook)
        path.chmod(0o755)
    repository.git("config", "filter.evil.smudge", f"touch {ran}; cat")
    repository.git("config", "core.fsmonitor", f"touch {ran}")
    assert files(cache, GitEnvironment(repository.url)) == {"one", ".gitattributes"}
    assert not ran.exists()


def test_configuration_and_templates_of_this_machine_do_not_count(
    cache: Cache,
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = tmp_path / "ran"
    hooks = tmp_path / "template" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (hooks / "post-checkout").chmod(0o755)
    (tmp_path / ".gitconfig").write_text(
        f"[core]\n hooksPath = {hooks}\n"
        f"[init]\n templateDir = {hooks.parent}\n"
        f'[url "file:///nowhere"]\n insteadOf = {repository.url}\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(hooks.parent))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    repository.commit({"one": ""})
    assert files(cache, GitEnvironment(repository.url)) == {"one"}
    assert not ran.exists()


def test_local_folders_are_refused_unless_allowed(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"one": ""})
    urls = (repository.url, str(repository.folder))
    for url in urls:
        said = failure(cache, GitEnvironment(url), EnvironmentPolicy())
        assert "not allowed on this node" in said
    for url in urls:
        assert files(cache, GitEnvironment(url)) == {"one"}


@pytest.mark.parametrize("url", ["ext::sh -c id", "--upload-pack=id", "http://x/y"])
def test_a_url_that_was_never_checked_is_refused_all_the_same(
    cache: Cache, url: str
) -> None:
    assert failure(cache, GitEnvironment(url))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "git://127.0.0.1:1/x"])
def test_git_itself_refuses_other_protocols(
    cache: Cache, repository: Repository, url: str
) -> None:
    # A submodule's URL is not the user's, and comes with the repository.
    repository.commit({"one": ""})
    repository.git("config", "-f", ".gitmodules", "submodule.in.path", "in")
    repository.git("config", "-f", ".gitmodules", "submodule.in.url", url)
    commit = "a" * 40
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},in")
    repository.git("add", ".gitmodules")
    repository.git("commit", "-qm", "in")
    said = failure(cache, GitEnvironment(repository.url, submodules=True))
    assert "transport" in said
    assert "not allowed" in said


def test_submodules_come_only_when_asked_for(
    cache: Cache, repository: Repository, tmp_path: Path
) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit({"deep": ""})
    repository.commit({"one": ""})
    repository.git("submodule", "--quiet", "add", inner.url, "in")
    repository.commit()
    without = GitEnvironment(repository.url)
    assert files(cache, without) == {".gitmodules", "one"}
    asked = replace(without, submodules=True)
    assert files(cache, asked) == {".gitmodules", "one", "in/deep"}


def test_large_files_need_git_lfs_on_the_node(
    cache: Cache,
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository.commit({"one": ""})
    monkeypatch.setenv("PATH", str(tmp_path))
    said = failure(cache, GitEnvironment(repository.url, lfs=True))
    assert said == "git-lfs is not installed on this node"
    said = failure(cache, GitEnvironment(repository.url))
    assert said == "git is not installed on this node"


def test_a_clone_goes_on_after_a_git_that_was_killed_in_it(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"one": ""})
    wanted = GitEnvironment(repository.url)
    files(cache, wanted)
    [clone] = (cache.folder / "git").glob("*/content")
    (clone / "shallow.lock").write_text("")
    (clone / "objects" / "pack" / "tmp_pack_abc").write_text("x")
    repository.commit({"two": ""})
    assert files(cache, wanted) == {"one", "two"}
    assert not list(clone.rglob("tmp_pack_*"))


def test_a_policy_does_not_show_its_tokens() -> None:
    assert "t0ken" not in repr(EnvironmentPolicy(git_tokens={"example.org": "t0ken"}))


def test_a_slow_server_ends_in_one_line(
    cache: Cache,
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "ssh").write_text("#!/bin/sh\nexec sleep 600\n")
    (fake / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    allowed = replace(LOCAL, git_allow=("127.0.0.1",), ssh_key="/key")
    policy = replace(allowed, git_timeout_s=0.5)
    said = failure(cache, GitEnvironment("git@127.0.0.1:x"), policy)
    assert said == "git ls-remote of git@127.0.0.1:x took longer than 0.5 s"

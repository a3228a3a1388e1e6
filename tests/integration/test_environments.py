"""Environments from real repositories, real archives and the real package index."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import uv

from corral.core.tasks.environment import ArchiveEnvironment, GitEnvironment
from corral.errors import EnvironmentFailed
from corral.files.archive import pack
from corral.worker.environments.cache import Cache
from corral.worker.environments.policy import EnvironmentPolicy
from corral.worker.environments.prepare import Prepared, prepare
from tests.acceptance.cluster import until
from tests.unit.worker.environments.repository import (
    LARGE,
    Repository,
    failure,
    left_behind,
    make,
)

PROJECT = """\
[project]
name = "far"
version = "1"
requires-python = ">=3.11"
dependencies = ["iniconfig"]
"""
PACKAGE = """\
[project]
name = "far"
version = "1"
requires-python = ">=3.11"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
# Builds a package of one module, and stops half way where it finds no file `go`.
BACKEND = """\
import os, signal, zipfile

def build_wheel(folder, config=None, metadata=None):
    if not os.path.exists(os.environ["UV_FIND_LINKS"] + "/go"):
        with open("waits", "w"):
            signal.pause()
    name = "far-1-py3-none-any.whl"
    facts = {
        "METADATA": "Metadata-Version: 2.1\\nName: far\\nVersion: 1\\n",
        "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("far.py", f"WHERE = __file__\\nNAMES = {dict(os.environ)}\\n")
        for file, text in facts.items():
            wheel.writestr(f"far-1.dist-info/{file}", text)
        wheel.writestr("far-1.dist-info/RECORD", "")
    return name
"""
# Prepares as another process: says what it did, and ends when told to.
ELSEWHERE = """
import sys
from pathlib import Path
from corral.core.tasks.environment import GitEnvironment
from corral.worker.environments.cache import Cache
from corral.worker.environments.prepare import prepare
from tests.unit.worker.environments.repository import LARGE, LOCAL, refuse

made = prepare(
    GitEnvironment(sys.argv[1]), cache=Cache(Path(sys.argv[2]), LARGE), fetch=refuse,
    policy=LOCAL,
)
print(made.facts["cloned"], made.facts["built"], made.root, flush=True)
sys.stdin.read()
made.close()
"""
WHERE = "import iniconfig; print(iniconfig.__file__)"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", LARGE)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def run(made: Prepared, code: str) -> str:
    """What a program prints that runs as a runner would."""
    done = subprocess.run(
        [made.python, "-c", code],
        cwd=made.folder,
        env=dict(made.variables),
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_the_second_launch_of_a_commit_neither_clones_nor_resolves(
    cache: Cache, repository: Repository
) -> None:
    commit = repository.commit({"pyproject.toml": PROJECT, "w.py": "import iniconfig"})
    wanted = GitEnvironment(repository.url, branch="main")
    with make(cache, wanted) as first:
        assert first.facts["commit"] == commit
        assert (first.facts["cloned"], first.facts["built"]) == (True, True)
        assert run(first, WHERE).startswith(first.variables["VIRTUAL_ENV"])
        before = cache.counters()
        with make(cache, wanted) as second:
            assert (second.facts["cloned"], second.facts["built"]) == (False, False)
            assert second.facts["seconds"] < first.facts["seconds"]
            assert second.python == first.python
            assert second.root != first.root
        assert not second.root.exists()
        assert first.root.exists()
    after = cache.counters()
    assert after == {**before, "hits": before["hits"] + 2}
    assert (after["clones"], after["fetches"], after["builds"]) == (1, 0, 1)


def test_a_runner_starts_there_and_sees_nothing_of_our_own_environment(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"pyproject.toml": PROJECT, "far.py": ""})
    with make(cache, GitEnvironment(repository.url)) as made:
        code = "import sys, far, corral.worker.runner.main; print('\\n'.join(sys.path))"
        paths = run(made, code).split("\n")
        others = [p for p in paths if "site-packages" in p]
        assert others
        assert all(p.startswith(made.variables["VIRTUAL_ENV"]) for p in others)
        ours = [name for name in ("celery", "psutil", "httpx") if _has(made, name)]
        assert ours == []
        shared = Path(made.variables["PYTHONPATH"])
        assert [path.name for path in shared.iterdir()] == ["corral"]


def _has(made: Prepared, name: str) -> bool:
    code = f"import importlib.util as u; print(u.find_spec({name!r}) is not None)"
    return run(made, code) == "True"


def test_commits_that_change_only_scripts_share_one_environment(
    cache: Cache, repository: Repository
) -> None:
    first = repository.commit({"pyproject.toml": PROJECT, "w.py": "1"})
    second = repository.commit({"w.py": "2"})
    for commit in (first, second):
        make(cache, GitEnvironment(repository.url, commit=commit)).close()
    assert cache.counters()["builds"] == 1


def test_a_locked_project_gets_the_versions_of_its_lock(
    cache: Cache, repository: Repository
) -> None:
    old = PROJECT.replace("iniconfig", "iniconfig==2.0.0")
    (repository.folder / "pyproject.toml").write_text(old)
    lock = [uv.find_uv_bin(), "lock", "--quiet"]
    subprocess.run(lock, cwd=repository.folder, check=True)
    repository.commit({"pyproject.toml": PROJECT})
    with make(cache, GitEnvironment(repository.url)) as made:
        found = "import importlib.metadata as m; print(m.version('iniconfig'))"
        assert run(made, found) == "2.0.0"


def test_plain_requirements_in_a_sub_folder_are_installed(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"sub/requirements.txt": "iniconfig\n", "sub/w.py": ""})
    wanted = GitEnvironment(repository.url, working_dir="sub")
    with make(cache, wanted) as made:
        assert made.folder == made.root / "sub"
        assert run(made, WHERE).startswith(made.variables["VIRTUAL_ENV"])


def test_sources_without_a_project_run_with_the_python_of_the_node(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"pkg/one.py": "", "sub/two.py": ""})
    with make(cache, GitEnvironment(repository.url, working_dir="sub")) as made:
        assert made.python == sys.executable
        assert run(made, "import two, pkg.one; print('both')") == "both"
    assert cache.counters()["builds"] == 0


def test_each_gets_a_copy_of_its_own_and_the_cache_stays_as_it_was(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"one": "as it was"})
    with make(cache, GitEnvironment(repository.url)) as made:
        (made.root / "one").write_text("changed")
        (made.root / "more").write_text("")
    with make(cache, GitEnvironment(repository.url)) as made:
        assert (made.root / "one").read_text() == "as it was"
        assert not (made.root / "more").exists()
    assert not list((cache.folder / "work").iterdir())


def test_an_archive_is_fetched_once_and_never_believed(
    cache: Cache, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "w.py").write_text("print('hi')")
    data = pack(source)
    wanted = ArchiveEnvironment(hashlib.sha256(data).hexdigest())
    asked: list[str] = []

    def fetch(digest: str) -> bytes:
        asked.append(digest)
        return data if len(asked) > 1 else data + b"\0"

    def again() -> Prepared:
        return prepare(wanted, cache=cache, fetch=fetch, policy=EnvironmentPolicy())

    assert "not those of archive" in failure(again, cache).message
    for _ in range(2):
        with again() as made:
            assert run(made, "import w") == "hi"
            assert made.facts["commit"] is None
    assert asked == [wanted.digest] * 2
    assert cache.counters()["unpacks"] == 1


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("working_dir", "../x", "working_dir '../x' leads out of the sources"),
        ("working_dir", "/etc", "working_dir '/etc' leads out of the sources"),
        ("working_dir", "gone", "working_dir 'gone' is not a folder of the sources"),
        ("working_dir", "one", "working_dir 'one' is not a folder of the sources"),
        ("project", "../x", "project '../x' leads out of the sources"),
        ("project", "sub", "project 'sub' has neither project nor requirements"),
    ],
)
def test_a_folder_that_is_not_in_the_repository_is_refused(
    cache: Cache, repository: Repository, field: str, value: str, why: str
) -> None:
    repository.commit({"one": "", "sub/two": ""})
    wanted = GitEnvironment(repository.url, **{field: value})  # type: ignore[arg-type]
    assert failure(lambda: make(cache, wanted), cache).message == why


def test_what_does_not_resolve_is_told_with_what_uv_said(
    cache: Cache, repository: Repository
) -> None:
    repository.commit(
        {"pyproject.toml": PROJECT.replace("iniconfig", "iniconfig==99.99")}
    )
    failed = failure(lambda: make(cache, GitEnvironment(repository.url)), cache)
    assert failed.message.startswith("uv sync failed: ")
    assert "iniconfig==99.99" in failed.message
    assert "iniconfig==99.99" in failed.output
    assert cache.counters()["builds"] == 0


def test_a_python_that_is_not_on_the_node_is_not_downloaded(
    cache: Cache, repository: Repository
) -> None:
    project = PROJECT.replace(">=3.11", ">=3.99")
    repository.commit({"pyproject.toml": project})
    failed = failure(lambda: make(cache, GitEnvironment(repository.url)), cache)
    assert "3.99" in failed.message


def test_a_file_that_cannot_be_written_ends_in_one_line(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"one": ""})
    (cache.folder / "work").mkdir(parents=True)
    (cache.folder / "tree").write_text("in the way")
    with pytest.raises(EnvironmentFailed, match="cannot prepare the environment: "):
        make(cache, GitEnvironment(repository.url))
    assert not list((cache.folder / "work").iterdir())


def test_the_build_alone_gets_the_settings_of_the_package_index(
    cache: Cache,
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir(mode=0o755)
    (wheels / "go").touch()
    repository.commit({"pyproject.toml": PACKAGE, "backend.py": BACKEND})
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("CORRAL_API_KEY", "secret")
    with make(cache, GitEnvironment(repository.url)) as made:
        assert not [name for name in made.variables if name == "UV_FIND_LINKS"]
        names = run(made, "import far; print(*far.NAMES)").split()
    assert "UV_FIND_LINKS" in names
    assert "CORRAL_API_KEY" not in names


def start_elsewhere(repository: Repository, cache: Cache) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE, repository.url, str(cache.folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_that_start_at_once_clone_and_build_once(
    cache: Cache, repository: Repository
) -> None:
    repository.commit({"pyproject.toml": PROJECT})
    started = [start_elsewhere(repository, cache) for _ in range(5)]
    said = [child.stdout.readline().split() for child in started if child.stdout]
    for child in started:
        child.communicate()
    assert sorted(built for _, built, _ in said) == ["False"] * 4 + ["True"]
    assert len({root for _, _, root in said}) == 5
    counted = cache.counters()
    assert (counted["clones"], counted["fetches"], counted["builds"]) == (1, 0, 1)
    assert not list((cache.folder / "work").iterdir())


def test_a_builder_killed_half_way_leaves_no_process_and_no_half_environment(
    cache: Cache,
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir(mode=0o755)
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    repository.commit({"pyproject.toml": PACKAGE, "backend.py": BACKEND})
    builder = start_elsewhere(repository, cache)
    work = cache.folder / "work"
    until("the build stops half way", lambda: list(work.glob("*/source/waits")))
    family = psutil.Process(builder.pid).children(recursive=True)
    assert len(family) > 3
    os.kill(builder.pid, signal.SIGKILL)
    builder.communicate()
    (wheels / "go").touch()
    with make(cache, GitEnvironment(repository.url)) as made:
        assert made.facts["built"]
        where = run(made, "import sys; sys.path.pop(0); import far; print(far.WHERE)")
        assert where.startswith(made.variables["VIRTUAL_ENV"])
        until("it ends", lambda: not any(_is_alive(each.pid) for each in family))
    assert not list((cache.folder / "work").iterdir())


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_an_environment_in_use_outlives_the_limit(
    cache: Cache, repository: Repository
) -> None:
    small = Cache(cache.folder, 0)
    repository.commit({"pyproject.toml": PROJECT})
    with make(small, GitEnvironment(repository.url)) as made:
        small.evict()
        assert run(made, WHERE)
        assert left_behind(small)[0].startswith("venv/")
    small.evict()
    assert left_behind(small) == []
    assert small.counters()["evictions"] >= 3
    assert small.size_bytes() == 0

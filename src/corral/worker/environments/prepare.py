"""A repository or an archive becomes a fresh folder and a Python to run in it.

The folder is one user's alone and goes with it; sources and Python come from the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from corral.core.tasks.environment import ArchiveEnvironment, GitEnvironment
from corral.core.tree import Tree, TreeFile, is_tree
from corral.errors import BadRequest, EnvironmentFailed
from corral.files.archive import unpack
from corral.files.tree import Get, read_manifest, write_file, write_tree
from corral.worker.environments import folder as folders
from corral.worker.environments.build import python_of
from corral.worker.environments.cache import Cache, CacheDraft, CacheEntry, key_of
from corral.worker.environments.git import Repository
from corral.worker.environments.policy import EnvironmentPolicy
from corral.worker.environments.project import Builder, find_project

__all__ = ["EnvironmentPolicy", "Prepared", "own_python", "prepare"]


AT_ONCE = 8
Fetch = Callable[[str], bytes]
_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class FilePool:
    """Files of cached trees by content: what one has, another need not fetch.

    `folder` has a link for each file, to one of the trees that have it. A link
    that leads nowhere belongs to a tree that was evicted.
    """

    folder: Path
    get: Get

    def write(self, tree: Tree, place: Path) -> None:
        """Write a tree into an empty folder; fetches what no other tree has.

        Raises:
            BadRequest: what came is not what the tree says.
        """
        with ThreadPoolExecutor(AT_ONCE, "fetch") as workers:
            write_tree(tree, place, self._make, workers.map)

    def _make(self, file: TreeFile, path: Path) -> None:
        known = self._place(file)
        try:
            os.link(os.readlink(known), path)
        except OSError:
            # Not there, or this disk makes no such links, or not so many.
            write_file(file, path, self.get)
            self._note(known, path)

    def _note(self, known: Path, path: Path) -> None:
        known.parent.mkdir(parents=True, exist_ok=True)
        draft = known.with_name(f"{known.name}.{secrets.token_hex(4)}")
        # A system that lets us make no links fetches more, and works.
        with contextlib.suppress(OSError):
            draft.symlink_to(path)
            os.replace(draft, known)

    def _place(self, file: TreeFile) -> Path:
        # The right to execute belongs to the file and not to its name.
        suffix = ".x" if file.is_executable else ""
        return self.folder / file.digest[:2] / (file.digest + suffix)

    def sweep(self) -> None:
        """Forget the ways to files that are gone."""
        for folder in self.folder.glob("??"):
            for entry in os.scandir(folder):
                if not os.path.exists(entry.path):
                    Path(entry.path).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where and with what to run; all of it stays until `close`.

    Attributes:
        python: the interpreter.
        root: the fresh copy of the sources.
        folder: the working_dir in it, to run in.
        variables: to be added to the environment, over what is there.
        facts: `commit` (None for an archive), whether it was `cloned` and `built` for
            this, and the `seconds` it took.
        reads: folders outside of `root` that what runs has to read.
    """

    python: str
    root: Path
    folder: Path
    variables: Mapping[str, str]
    facts: Mapping[str, Any]
    reads: tuple[Path, ...]
    _held: ExitStack = field(repr=False)

    def close(self) -> None:
        """Remove the folder and let go of the rest; a second time does nothing."""
        self._held.close()

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prepare(
    environment: GitEnvironment | ArchiveEnvironment,
    *,
    cache: Cache,
    fetch: Fetch,
    policy: EnvironmentPolicy,
    for_runner: bool = True,
    fetch_code: Fetch | None = None,
) -> Prepared:
    """Fetch and build what is missing; may take minutes.

    Args:
        environment: where the code comes from.
        cache: what this node has already.
        fetch: gives the bytes of an object by its digest.
        fetch_code: the same for the archive itself, where that must have been sent to
            be run; what it consists of may be anything.
        policy: what the administrator allows.
        for_runner: the Python must be able to run `corral.worker.runner.main`; scripts
            need less, and run with older Pythons, too.

    Raises:
        EnvironmentFailed: why not, in one line; `.output` has the end of what git or
            uv said. Nothing is left behind.
        CorralError: what `fetch` raised.
    """
    began = time.monotonic()
    with ExitStack() as held:
        try:
            cache.sweep()
            files = FilePool(cache.folder / "pool", fetch)
            first = fetch_code or fetch
            commit, tree = _sources(environment, cache, files, policy, first)
            with tree:
                made = _make(
                    environment, tree, Builder(cache, policy, for_runner), held
                )
        except OSError as error:
            why = error.strerror or str(error)
            raise EnvironmentFailed(f"cannot prepare the environment: {why}") from error
        root, venv = made
        folder = _inside(root, environment.working_dir, "working_dir")
        library = _library(cache)
        return Prepared(
            str(python_of(venv.path)) if venv else sys.executable,
            root,
            folder,
            _variables(venv, library, folder, root, commit),
            {
                "commit": commit,
                "cloned": tree.was_built,
                "built": venv is not None and venv.was_built,
                "seconds": round(time.monotonic() - began, 3),
            },
            _reads(venv, library),
            held.pop_all(),
        )


def _sources(
    environment: GitEnvironment | ArchiveEnvironment,
    cache: Cache,
    pool: FilePool,
    policy: EnvironmentPolicy,
    fetch_code: Fetch,
) -> tuple[str | None, CacheEntry]:
    if isinstance(environment, GitEnvironment):
        repository = Repository(environment, cache, policy)
        commit = repository.resolve()
        return commit, repository.tree(commit)
    digest = environment.digest

    def build(draft: CacheDraft) -> None:
        _unpack(digest, draft.path, fetch_code(digest), pool)
        cache.count("unpacks")

    key = key_of("archive", digest)
    return None, cache.hold("tree", key, build, timeout_s=policy.patience_s)


def _unpack(digest: str, place: Path, data: bytes, pool: FilePool) -> None:
    """An archive in one piece, or a tree whose files are fetched where missing."""
    if hashlib.sha256(data).hexdigest() != digest:
        raise EnvironmentFailed(
            f"the bytes that came are not those of archive {digest}"
        )
    try:
        if is_tree(data):
            place.mkdir()
            pool.write(read_manifest(data, pool.get), place)
            pool.sweep()
        else:
            unpack(data, place)
    except BadRequest as error:
        raise EnvironmentFailed(error.message) from error
    folders.seal(place)


def _make(
    environment: GitEnvironment | ArchiveEnvironment,
    tree: CacheEntry,
    builder: Builder,
    held: ExitStack,
) -> tuple[Path, CacheEntry | None]:
    """A copy of the sources, and the Python for their project if they have one."""
    _inside(tree.path, environment.working_dir, "working_dir")
    _inside(tree.path, environment.project, "project")
    named = environment.project
    places = (named,) if named else (environment.working_dir, "")
    project = find_project(tree.path, *places)
    if project is None and named:
        raise EnvironmentFailed(
            f"project {named!r} has neither project nor requirements"
        )
    venv = builder.venv(project, tree.key) if project else None
    if venv is not None:
        held.callback(venv.release)
    root = held.enter_context(builder.cache.scratch()) / "source"
    folders.copy(tree.path, root)
    return root, venv


def _inside(root: Path, name: str, what: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise EnvironmentFailed(f"{what} {name!r} leads out of the sources")
    # Links in the sources were found to stay inside.
    if not (root / path).is_dir():
        raise EnvironmentFailed(f"{what} {name!r} is not a folder of the sources")
    return root / path


def _library(cache: Cache) -> Path:
    """A folder with the corral package and nothing else of our own environment."""
    place = cache.folder / "library" / key_of(str(_PACKAGE)) / _PACKAGE.name
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with suppress(FileExistsError):
                place.symlink_to(_PACKAGE, target_is_directory=True)
        except OSError:
            # Windows may not let us make links.
            shutil.copytree(_PACKAGE, place, dirs_exist_ok=True)
    return place.parent


def _variables(
    venv: CacheEntry | None, library: Path, folder: Path, root: Path, commit: str | None
) -> dict[str, str]:
    known = {"CORRAL_GIT_COMMIT": commit} if commit else {}
    if venv is None:
        paths = dict.fromkeys((str(library), str(folder), str(root)))
        return {**known, "PYTHONPATH": os.pathsep.join(paths)}
    programs = str(python_of(venv.path).parent)
    return {
        **known,
        "PYTHONPATH": str(library),
        "VIRTUAL_ENV": str(venv.path),
        "PATH": os.pathsep.join((programs, os.environ.get("PATH", os.defpath))),
        # `uv run` in a script then takes what is there.
        "UV_PROJECT_ENVIRONMENT": str(venv.path),
        "UV_NO_SYNC": "1",
    }


def own_python(cache: Cache, folder: Path) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Variables and folders to read for code that brings nothing along."""
    library = _library(cache)
    return _variables(None, library, folder, folder, None), _reads(None, library)


def _reads(venv: CacheEntry | None, library: Path) -> tuple[Path, ...]:
    if venv is None:
        return (library, _PACKAGE, Path(sys.prefix), Path(sys.base_prefix))
    below = python_of(venv.path).resolve().parents[1]
    return (library, _PACKAGE, venv.path, below)

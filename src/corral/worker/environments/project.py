"""A Python with what a project needs, built by uv and named by what it is made from.

Only the build is here: nothing knows whose project it is or what will run in it.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from corral.errors import EnvironmentFailed
from corral.worker.environments import folder
from corral.worker.environments.build import (
    PYPROJECT,
    Build,
    BuildFolders,
    own_python,
    python_of,
)
from corral.worker.environments.cache import Cache, CacheDraft, CacheEntry, key_of
from corral.worker.environments.policy import EnvironmentPolicy

OLDEST_PYTHON = (3, 11)
_REQUIREMENTS = "requirements.txt"
# Beside the project file, all that uv looks at to choose versions.
_ASIDE = ("uv.lock", "uv.toml", ".python-version")
# Lines of requirements that may name files beside them.
_ELSEWHERE = re.compile(
    r"^\s*-(?!-(hash|index-url|extra-index-url|pre|require-hashes)\b)"
    r"|^\s*[^\s@#]*[/\\]|^\s*[.~]|\.(whl|zip|gz)\s*$|file:|@\s*\.",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Project:
    """A project file, found at `path` in the sources at `root`."""

    root: Path
    path: str
    file: str

    @property
    def folder(self) -> Path:
        return self.root / self.path

    def key(self, sources: str) -> str:
        """What makes its environment; `sources` names everything there is."""
        if self.is_all_told:
            names = (self.file, *_ASIDE)
            return key_of("files", self.file, *map(self._text, names))
        return key_of("sources", self.file, sources, self.path)

    @property
    def is_all_told(self) -> bool:
        """Is the environment the same whatever the other files are?

        A project that is itself installed, or whose dependencies lie beside it, is
        made of them; a project of scripts is not, and then commits share it.
        """
        if self.file == _REQUIREMENTS:
            return _ELSEWHERE.search(self._text(self.file)) is None
        told = _read(self.folder / self.file)
        own = _table(_table(told, "tool"), "uv")
        sources = _table(own, "sources").values()
        return (
            not any((above / PYPROJECT).exists() for above in self._above())
            and "build-system" not in told
            and not own.get("package")
            and not own.keys() & {"workspace", "find-links"}
            and "dynamic" not in _table(told, "project")
            and "file:" not in self._text(self.file)
            and not any(_is_beside(source) for source in sources)
        )

    def _above(self) -> Iterator[Path]:
        """The folders around the project: it may belong to a workspace."""
        yield from (self.root / part for part in PurePosixPath(self.path).parents)

    def _text(self, name: str) -> str:
        try:
            return (self.folder / name).read_bytes().decode("utf-8", "surrogateescape")
        except (FileNotFoundError, IsADirectoryError):
            return ""


def find_project(root: Path, *paths: str) -> Project | None:
    """The first of these folders that has something to build an environment from."""
    for path in paths:
        file = root / path / PYPROJECT
        if file.is_file() and _is_project(_read(file)):
            return Project(root, path, PYPROJECT)
        if (root / path / _REQUIREMENTS).is_file():
            return Project(root, path, _REQUIREMENTS)
    return None


def _is_project(told: dict[str, Any]) -> bool:
    """Many a pyproject.toml has but the settings of a linter."""
    return "project" in told or "workspace" in _table(_table(told, "tool"), "uv")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        why = f"{file.name} cannot be read: {error}"
        raise EnvironmentFailed(why.replace("\n", " ")) from error


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _is_beside(source: Any) -> bool:
    many = source if isinstance(source, list) else [source]
    return any(
        isinstance(one, dict) and one.keys() & {"path", "workspace"} for one in many
    )


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds environments into a cache; `for_runner` ones can run our runner."""

    cache: Cache
    policy: EnvironmentPolicy
    for_runner: bool

    def venv(self, project: Project, sources: str) -> CacheEntry:
        """The environment of a project, built if nobody has before.

        Raises:
            EnvironmentFailed: it cannot be built.
        """
        runner = _runner_needs() if self.for_runner else ""
        here = (sys.version, str(own_python()), platform.machine(), runner)
        return self.cache.hold(
            "venv",
            key_of(*here, project.key(sources)),
            lambda draft: self._build(draft, project),
            timeout_s=self.policy.patience_s,
            is_usable=lambda place: os.access(python_of(place), os.X_OK),
        )

    def _build(self, draft: CacheDraft, project: Project) -> None:
        with self.cache.scratch() as scratch, self._downloads() as downloads:
            # Builds write into the sources, which are shared.
            source = scratch / "source"
            folder.copy(project.root, source)
            place = source / project.path
            folders = BuildFolders(source, place, scratch, draft.path, downloads)
            build = Build(folders, self.policy, not project.is_all_told)
            build.install(project.file, _runner_needs() if self.for_runner else None)
            if self.for_runner:
                _check_version(draft.path)
        folder.seal(draft.path)
        self.cache.count("builds")

    @contextmanager
    def _downloads(self) -> Iterator[Path]:
        """uv's own cache; it is made for many users at once."""
        patience_s = self.policy.patience_s
        held = self.cache.hold(
            "uv", "downloads", lambda draft: draft.path.mkdir(), timeout_s=patience_s
        )
        with held:
            try:
                yield held.path
            finally:
                self.cache.measure("uv", "downloads")


def _runner_needs() -> str:
    """All that a runner imports beside Corral and the standard library."""
    return f"msgspec=={version('msgspec')}"


def _check_version(venv: Path) -> None:
    text = (venv / "pyvenv.cfg").read_text(encoding="utf-8")
    found = re.search(r"^version(?:_info)? *= *(\d+)\.(\d+)", text, re.MULTILINE)
    if found and tuple(map(int, found.groups())) < OLDEST_PYTHON:
        raise EnvironmentFailed(
            f"the project takes Python {found[1]}.{found[2]}; workers need "
            f"{OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer"
        )

"""A Python with what a project needs, built by uv and named by what it is made from.

Only the build is here: nothing knows whose project it is or what will run in it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

import uv

from corral.errors import EnvironmentFailed
from corral.worker.environments import folder, tool
from corral.worker.environments.cache import Cache, CacheDraft, CacheEntry, key_of
from corral.worker.environments.git import git_variables
from corral.worker.environments.policy import EnvironmentPolicy

OLDEST_PYTHON = (3, 11)
_PYPROJECT, _REQUIREMENTS = "pyproject.toml", "requirements.txt"
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
        if self._is_all_told():
            names = (self.file, *_ASIDE)
            return key_of("files", self.file, *map(self._text, names))
        return key_of("sources", self.file, sources, self.path)

    def _is_all_told(self) -> bool:
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
            not any((above / _PYPROJECT).exists() for above in self._above())
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
        file = root / path / _PYPROJECT
        if file.is_file() and _is_project(_read(file)):
            return Project(root, path, _PYPROJECT)
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
        here = (sys.version, str(_own_python()), platform.machine(), runner)
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
            folder.copy(project.root, scratch / "source")
            step = _Step(self, draft, scratch, downloads)
            step.install(scratch / "source" / project.path, project.file)
            if self.for_runner:
                _check_version(draft.path)
                step.add_runner_needs(scratch / "source" / project.path)
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


@dataclass(frozen=True, slots=True)
class _Step:
    """The uv calls of one build."""

    builder: Builder
    draft: CacheDraft
    scratch: Path
    downloads: Path

    def install(self, place: Path, file: str) -> None:
        venv = str(self.draft.path)
        if file == _PYPROJECT:
            frozen = ("--frozen",) if (place / "uv.lock").is_file() else ()
            self._uv(place, "sync", "--no-editable", "--no-default-groups", *frozen)
        else:
            self._uv(place, "venv", "--no-project", venv)
            python = str(python_of(self.draft.path))
            self._uv(place, "pip", "install", "--python", python, "-r", file)

    def add_runner_needs(self, place: Path) -> None:
        if not any(self.draft.path.glob("[lL]ib*/**/site-packages/msgspec")):
            python = str(python_of(self.draft.path))
            install = ("pip", "install", "--python", python, "--no-deps")
            self._uv(place, *install, _runner_needs())

    def _uv(self, place: Path, *words: str) -> None:
        tool.run(
            [_uv_program(), "--no-progress", "--color=never", *words],
            variables=self._variables(),
            folder=place,
            timeout_s=self.builder.policy.build_timeout_s,
            what=f"uv {words[0] if words[0] != 'pip' else 'pip install'}",
            mark=str(self.draft.path),
        )

    def _variables(self) -> dict[str, str]:
        home, temp = self.scratch / "home", self.scratch / "temp"
        home.mkdir(exist_ok=True)
        temp.mkdir(exist_ok=True)
        settings = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        # Whom it calls nobody judges: a redirect is no way around anything.
        followed = [("http.followRedirects", "initial")]
        base = git_variables(self.builder.policy, followed)
        given = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("UV_", "PIP_"))
        }
        return {
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_PYTHON_PREFERENCE": "system",
            **base,
            **given,
            # Our own Python comes first among those that a project can use.
            "PATH": os.pathsep.join((str(_own_python().parent), base.get("PATH", ""))),
            "HOME": str(home),
            # Where an administrator may have told uv and pip about an index.
            "XDG_CONFIG_HOME": settings,
            **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temp)),
            "UV_CACHE_DIR": str(self.downloads),
            "UV_PROJECT_ENVIRONMENT": str(self.draft.path),
            # Nobody can write there later.
            "UV_COMPILE_BYTECODE": "1",
        }


def python_of(venv: Path) -> Path:
    if sys.platform == "win32":
        return venv / "Scripts" / "python.exe"
    return venv / "bin" / "python"


def _own_python() -> Path:
    """The interpreter below whatever environment we run in ourselves."""
    return Path(sys.executable).resolve()


def _runner_needs() -> str:
    """All that a runner imports beside Corral and the standard library."""
    return f"msgspec=={version('msgspec')}"


def _uv_program() -> str:
    try:
        return uv.find_uv_bin()
    except FileNotFoundError as error:
        found = shutil.which("uv")
        if found is None:
            raise EnvironmentFailed("uv is not installed on this node") from error
        return found


def _check_version(venv: Path) -> None:
    text = (venv / "pyvenv.cfg").read_text(encoding="utf-8")
    found = re.search(r"^version(?:_info)? *= *(\d+)\.(\d+)", text, re.MULTILINE)
    if found and tuple(map(int, found.groups())) < OLDEST_PYTHON:
        raise EnvironmentFailed(
            f"the project takes Python {found[1]}.{found[2]}; workers need "
            f"{OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer"
        )

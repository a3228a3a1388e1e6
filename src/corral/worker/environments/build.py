"""The steps that make a Python of a project, each in a sandbox of its own.

Wheels are fetched by uv alone, with the index's credentials and a cache that all share:
no code of anybody runs then. What has to be built runs code of the project: it sees
neither, and keeps nothing for the next build.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uv

from corral.errors import EnvironmentFailed
from corral.worker import isolation
from corral.worker.environments import tool
from corral.worker.environments.git import git_variables
from corral.worker.environments.policy import EnvironmentPolicy
from corral.worker.isolation import Network

PYPROJECT = "pyproject.toml"
# What uv says where there is no wheel and it may build none.
_UNBUILT = re.compile(r"`?--no-build`?|[Bb]uilding source distributions .*disabled")
_SECRET = re.compile(r"\w*(TOKEN|PASSWORD|USERNAME|KEY|SECRET)\w*")
_OF_INDEX = re.compile(r"UV_INDEX_(\w+)_(?:USERNAME|PASSWORD)")
_USER = re.compile(r"(?<=://)[^/\s@]*@")


@dataclass(frozen=True, slots=True)
class BuildFolders:
    """`source` is a copy of the sources, `place` the project in it, `venv` the goal.

    `downloads` is uv's cache, which all builds of this node share.
    """

    source: Path
    place: Path
    scratch: Path
    venv: Path
    downloads: Path


@dataclass(frozen=True, slots=True)
class Build:
    """One build. `is_made_of_sources`: something beside the project file counts."""

    folders: BuildFolders
    policy: EnvironmentPolicy
    is_made_of_sources: bool

    def install(self, file: str, more: str | None = None) -> None:
        """Make the environment that a project file asks for, and install `more`.

        Raises:
            EnvironmentFailed: it cannot be made.
        """
        self.folders.venv.mkdir(parents=True, exist_ok=True)
        # Two users read them, if the node's is root.
        isolation.share(self.folders.source)
        if file == PYPROJECT:
            self._sync(more)
        else:
            self._install_listed(file, more)

    def _sync(self, more: str | None) -> None:
        words = ("sync", "--no-editable", "--no-default-groups")
        wheels = (*words, "--no-install-local", "--no-build")
        is_locked = (self.folders.place / "uv.lock").is_file()
        unbuilt = self._fetch(*wheels, *(("--frozen",) if is_locked else ()))
        if unbuilt and not is_locked:
            # What it depends on may be known to its own code alone.
            self._run_code("lock")
            unbuilt = self._fetch(*wheels, "--frozen")
        if unbuilt:
            self._check_may_build(unbuilt)
            self._run_code(*words, "--frozen")
        if more and not unbuilt:
            self._add(more)
        if self.is_made_of_sources:
            self._run_code(*words, "--inexact", "--frozen")
        if more and unbuilt:
            self._run_code(*self._pip, "--no-deps", more)

    def _install_listed(self, file: str, more: str | None) -> None:
        self._fetch("venv", "--no-project", "--allow-existing", str(self.folders.venv))
        unbuilt = self._fetch(*self._pip, "--no-build", "-r", file)
        if unbuilt is None and more:
            self._add(more)
        if unbuilt:
            if not self.is_made_of_sources:
                self._check_may_build(unbuilt)
            self._run_code(*self._pip, "-r", file)
            if more:
                self._run_code(*self._pip, "--no-deps", more)

    def _add(self, requirement: str) -> None:
        self._fetch(*self._pip, "--no-deps", requirement)

    @property
    def _pip(self) -> tuple[str, ...]:
        return ("pip", "install", "--python", str(python_of(self.folders.venv)))

    def _check_may_build(self, error: EnvironmentFailed) -> None:
        if not self.policy.builds_dependencies:
            raise EnvironmentFailed(
                f"{error.message}: a dependency has no wheel for this node; name a "
                "version that has one, or have the node's administrator set "
                "CORRAL_BUILD_DEPENDENCIES=1",
                output=getattr(error, "output", ""),
            )

    # the two ways to call uv ---------------------------------------------------------
    def _fetch(self, *words: str) -> EnvironmentFailed | None:
        """Run no code of anybody; what failed if that cannot be.

        Raises:
            EnvironmentFailed: for any other reason.
        """
        folders = self.folders
        if self.is_made_of_sources and os.geteuid() != 0:
            # Files shared with the cache would be open to code that runs as us.
            mode = {"UV_LINK_MODE": "copy"}
        else:
            mode = {}
        settings = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        variables = {
            # Where an administrator may have told uv about an index.
            "XDG_CONFIG_HOME": str(settings),
            **mode,
            **self._told(_index_variables(os.environ, folders.place)),
            "UV_CACHE_DIR": str(folders.downloads),
        }
        shown = tuple(place for place in (settings / "uv",) if place.is_dir())
        try:
            self._uv(words, variables, shown, (folders.downloads,), is_ours=True)
        except EnvironmentFailed as error:
            if _UNBUILT.search(f"{error.message} {getattr(error, 'output', '')}"):
                return error
            raise
        return None

    def _run_code(self, *words: str) -> None:
        """Let uv build: nothing that it sees is another's, or goes on to another."""
        variables = self._told(without_secrets(os.environ))
        cache = self.folders.scratch / f"cache-{secrets.token_hex(4)}"
        cache.mkdir()
        variables["UV_CACHE_DIR"] = str(cache)
        self._uv(words, variables, (), (cache,), is_ours=False)

    def _told(self, given: Mapping[str, str]) -> dict[str, str]:
        names = ("UV_", "PIP_")
        # Whom it calls nobody judges: a redirect is no way around anything.
        base = git_variables(self.policy, [("http.followRedirects", "initial")])
        return {
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_PYTHON_PREFERENCE": "system",
            **base,
            **{name: text for name, text in given.items() if name.startswith(names)},
            # Our own Python comes first among those that a project can use.
            "PATH": os.pathsep.join((str(own_python().parent), base.get("PATH", ""))),
            "UV_PROJECT_ENVIRONMENT": str(self.folders.venv),
            # Nobody can write there later.
            "UV_COMPILE_BYTECODE": "1",
        }

    def _uv(
        self,
        words: tuple[str, ...],
        variables: Mapping[str, str],
        readable: tuple[Path, ...],
        writable: tuple[Path, ...],
        *,
        is_ours: bool,
    ) -> None:
        program = Path(_uv_program())
        folders = self.folders
        job = isolation.SandboxJob(
            argv=(str(program), "--no-progress", "--color=never", *words),
            folder=folders.place,
            scratch=folders.scratch / "own",
            mark=f"build.{secrets.token_hex(8)}",
            environment=variables,
            readable=(program.parent, *readable, *_places_in(variables)),
            writable=(folders.source, folders.venv, *writable),
            hidden=self.policy.hidden,
            is_ours=is_ours,
            # An index may be on this very machine; only code of others is kept away.
            network=Network.HOST if is_ours else self.policy.reach.choose(Network.OWN),
            reach=self.policy.reach,
        )
        tool.run_confined(
            job,
            isolation.level_for(self.policy.isolation),
            timeout_s=self.policy.build_timeout_s,
            what=f"uv {words[0] if words[0] != 'pip' else 'pip install'}",
            mark=str(folders.venv),
        )


def without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that name no secret, and no user in a URL."""
    return {
        name: _USER.sub("", text)
        for name, text in variables.items()
        if not _SECRET.fullmatch(name)
    }


def _index_variables(variables: Mapping[str, str], place: Path) -> dict[str, str]:
    """All but the passwords of indexes that the project calls so, and not the node.

    uv knows a password by the name of its index alone: a project could have it sent to
    wherever it says.
    """
    ours: dict[str, str] = {}
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX"):
        for word in variables.get(name, "").split():
            called, found, url = word.partition("=")
            if found:
                ours[_as_variable(called)] = url
    theirs = dict(_own_indexes(place))
    safe = {called for called, url in ours.items() if theirs.get(called, url) == url}
    return {
        name: text
        for name, text in variables.items()
        if (of := _OF_INDEX.fullmatch(name)) is None or of[1] in safe
    }


def _own_indexes(place: Path) -> Iterator[tuple[str, str]]:
    for file, path in ((PYPROJECT, ("tool", "uv")), ("uv.toml", ())):
        try:
            told: Any = tomllib.loads((place / file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        for name in path:
            told = told.get(name) if isinstance(told, dict) else None
        listed = told.get("index") if isinstance(told, dict) else None
        for index in listed if isinstance(listed, list) else ():
            if isinstance(index, dict) and isinstance(index.get("name"), str):
                yield _as_variable(index["name"]), str(index.get("url"))


def _as_variable(name: str) -> str:
    return re.sub(r"\W", "_", name).upper()


def _places_in(variables: Mapping[str, str]) -> Iterator[Path]:
    """Folders of this machine that uv was told to look for wheels in."""
    for name in ("UV_FIND_LINKS", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX_URL"):
        for word in re.split(r"[\s,]+", variables.get(name, "")):
            path = Path(urlsplit(word).path if word.startswith("file:") else word)
            if path.is_absolute() and path.is_dir():
                yield path


def python_of(venv: Path) -> Path:
    if sys.platform == "win32":
        return venv / "Scripts" / "python.exe"
    return venv / "bin" / "python"


def own_python() -> Path:
    """The interpreter below whatever environment we run in ourselves."""
    return Path(sys.executable).resolve()


def _uv_program() -> str:
    try:
        return uv.find_uv_bin()
    except FileNotFoundError as error:
        found = shutil.which("uv")
        if found is None:
            raise EnvironmentFailed("uv is not installed on this node") from error
        return found

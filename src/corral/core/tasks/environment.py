"""Where code to run comes from, beside what a node has installed.

One vocabulary for worker types and scripts: `{"git": {...}}`, `{"archive": {...}}` or
`{"docker": {...}}`. What is checked here needs no network and no disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from corral.errors import InvalidField

_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_BRANCH = re.compile(r"(?!-)(?!.*\.\.)(?!.*@\{)[\w./@+-]{1,255}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_IMAGE = re.compile(r"[\w][\w.:/@+-]{0,511}")
_SCP = re.compile(r"(?P<user>[\w.-]+@)?(?P<host>[\w][\w.-]*):(?P<path>[^:].*)")
_SCHEMES = ("https", "ssh", "file")
_PORTS = {"https": 443, "ssh": 22}


@dataclass(frozen=True, slots=True)
class GitEnvironment:
    """A commit, or the head of a branch; the default branch without either."""

    repo_url: str
    branch: str | None = None
    commit: str | None = None
    working_dir: str = ""
    project: str = ""
    submodules: bool = False
    lfs: bool = False


@dataclass(frozen=True, slots=True)
class ArchiveEnvironment:
    """A folder that was packed and uploaded, named by its digest."""

    digest: str
    working_dir: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True)
class ContainerEnvironment:
    """An image that Docker or Podman on the node has or can pull."""

    image: str
    working_dir: str = ""
    volumes: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()


Environment = GitEnvironment | ArchiveEnvironment | ContainerEnvironment
_KINDS: dict[str, type[Environment]] = {
    "git": GitEnvironment,
    "archive": ArchiveEnvironment,
    "docker": ContainerEnvironment,
}


def to_plain(environment: Environment) -> dict[str, Any]:
    """The form that travels: one kind, with its fields."""
    for name, kind in _KINDS.items():
        if isinstance(environment, kind):
            return {name: asdict(environment)}
    raise TypeError(type(environment).__name__)


def from_plain(told: Any, where: str = "environment") -> Environment:
    """Read and check what `to_plain` wrote, or a user.

    Raises:
        InvalidField: what is wrong, naming the field below `where`.
    """
    if not isinstance(told, Mapping) or len(told) != 1:
        raise InvalidField(f"{where} needs one of: {', '.join(_KINDS)}", field=where)
    [(name, fields)] = told.items()
    kind = _KINDS.get(name)
    if kind is None:
        raise InvalidField(
            f"{where} has no kind {name!r}: {', '.join(_KINDS)}", field=where
        )
    where = f"{where}.{name}"
    if not isinstance(fields, Mapping):
        raise InvalidField(f"{where} must be an object", field=where)
    given = {key: value for key, value in fields.items() if value is not None}
    unknown = given.keys() - kind.__dataclass_fields__.keys()
    if unknown:
        raise InvalidField(
            f"{where} has no field {min(unknown)!r}", field=f"{where}.{min(unknown)}"
        )
    return _CHECKS[kind](given, where)


def _git(given: dict[str, Any], where: str) -> GitEnvironment:
    url = _text(given, "repo_url", where, needed=True)
    check_repo_url(url, f"{where}.repo_url")
    branch, commit = _text(given, "branch", where), _text(given, "commit", where)
    if branch and not _BRANCH.fullmatch(branch):
        raise InvalidField(f"{branch!r} is no branch name", field=f"{where}.branch")
    if commit and not _COMMIT.fullmatch(commit):
        raise InvalidField(
            f"{commit!r} is no commit: 7 to 64 hex digits", field=f"{where}.commit"
        )
    return GitEnvironment(
        url,
        branch or None,
        commit.lower() or None,
        _folder(given, "working_dir", where),
        _folder(given, "project", where),
        _flag(given, "submodules", where),
        _flag(given, "lfs", where),
    )


def check_repo_url(url: str, where: str = "repo_url") -> None:
    """Refuse what Git would take for an option, a command or another protocol.

    Whether `file` is allowed is the node's to say.
    """
    if not url.isprintable() or " " in url or url.startswith("-"):
        raise InvalidField(f"{url!r} is no repository URL", field=where)
    if "::" in url:
        raise InvalidField("remote helpers are not allowed in a URL", field=where)
    if "://" not in url:
        if url.startswith("/") or _SCP.fullmatch(url):
            return
        raise InvalidField(
            f"{url!r} must begin with https:// or ssh://, or read user@host:path",
            field=where,
        )
    _check_parts(url, where)


def host_of(url: str) -> tuple[str, int]:
    """Host and port that Git calls for a URL; no host for one on this machine."""
    if "://" in url:
        parts = urlsplit(url)
        is_here = parts.scheme not in _PORTS
        port = parts.port or _PORTS.get(parts.scheme, 0)
        return ("", 0) if is_here else (parts.hostname or "", port)
    found = None if url.startswith("/") else _SCP.fullmatch(url)
    return (found["host"].lower(), _PORTS["ssh"]) if found else ("", 0)


def _check_parts(url: str, where: str) -> None:
    # As Git reads it: in small letters.
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        raise InvalidField(f"{scheme!r} is not allowed: use https or ssh", field=where)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidField(f"{url!r} is no repository URL", field=where) from error
    if parts.password or (scheme == "https" and "@" in parts.netloc):
        raise InvalidField(
            "no credentials in a URL: an administrator gives them per host", field=where
        )
    if scheme != "file" and (not host or "-" in (host[0], parts.netloc[0])):
        raise InvalidField(f"{url!r} names no host", field=where)


def _archive(given: dict[str, Any], where: str) -> ArchiveEnvironment:
    digest = _text(given, "digest", where, needed=True)
    if not _DIGEST.fullmatch(digest):
        raise InvalidField("a digest is 64 hex digits", field=f"{where}.digest")
    return ArchiveEnvironment(
        digest, _folder(given, "working_dir", where), _folder(given, "project", where)
    )


def _container(given: dict[str, Any], where: str) -> ContainerEnvironment:
    image = _text(given, "image", where, needed=True)
    if not _IMAGE.fullmatch(image):
        raise InvalidField(f"{image!r} is no image name", field=f"{where}.image")
    devices = given.get("devices", ())
    if not isinstance(devices, list | tuple) or not all(
        isinstance(device, str) for device in devices
    ):
        raise InvalidField("devices is a list of texts", field=f"{where}.devices")
    return ContainerEnvironment(
        image,
        _text(given, "working_dir", where),
        _pairs(given, "volumes", where),
        _pairs(given, "environment", where),
        tuple(devices),
    )


_CHECKS: dict[type[Environment], Callable[[dict[str, Any], str], Environment]] = {
    GitEnvironment: _git,
    ArchiveEnvironment: _archive,
    ContainerEnvironment: _container,
}


def _text(given: dict[str, Any], name: str, where: str, *, needed: bool = False) -> str:
    value = given.get(name, "")
    field = f"{where}.{name}"
    if not isinstance(value, str) or "\0" in value or len(value) > 4096:
        raise InvalidField(f"{name} must be a text", field=field)
    if needed and not value:
        raise InvalidField(f"{where} needs {name}", field=field)
    return value


def _flag(given: dict[str, Any], name: str, where: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise InvalidField(f"{name} must be true or false", field=f"{where}.{name}")
    return value


def _folder(given: dict[str, Any], name: str, where: str) -> str:
    """A folder below the root of what is fetched, written with slashes."""
    text = _text(given, name, where)
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or "\\" in text:
        raise InvalidField(
            f"{name} {text!r} leads out of the repository", field=f"{where}.{name}"
        )
    return "" if str(path) == "." else str(path)


def _pairs(given: dict[str, Any], name: str, where: str) -> dict[str, str]:
    value = given.get(name, {})
    if not isinstance(value, Mapping) or not all(
        isinstance(k, str) and isinstance(v, str) and "\0" not in k + v
        for k, v in value.items()
    ):
        raise InvalidField(f"{name} must map texts to texts", field=f"{where}.{name}")
    return dict(value)

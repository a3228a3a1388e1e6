"""Looks at the stores in the data folder without starting or changing anything."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import quote

from corral.doctor.judge.embedded import EmbeddedStore
from corral.doctor.judge.store import DATABASE, REDIS
from corral.embedded.binaries import (
    PostgresBinaries,
    RedisKind,
    find_postgres,
    find_redis,
)
from corral.embedded.folder import Folder
from corral.embedded.postgres import DATABASE as DATABASE_NAME
from corral.embedded.postgres import USER
from corral.errors import EmbeddedError
from corral.process.keep_alive import bare_environment

_TOOL_S = 5.0
# What no PostgreSQL can start without.
_VITAL = ("PG_VERSION", "global/pg_control", "pg_wal", "base")
_FATAL = re.compile(r"(?:FATAL|PANIC): +(.*)")


def postgres_url(folder: Folder) -> str | None:
    """How to reach the running one, as it wrote it down itself."""
    try:
        note = (folder.postgres / "data" / "postmaster.pid").read_text("ascii")
        password = (folder.secrets / "postgres.password").read_text("ascii").strip()
        _, _, _, port, sockets, host, *_ = note.split("\n")
    except (OSError, ValueError):
        return None
    if sockets:
        place = f"/{DATABASE_NAME}?host={quote(sockets)}&port={port}"
    else:
        place = f"{host or '127.0.0.1'}:{port}/{DATABASE_NAME}"
    return f"postgresql://{USER}:{password}@{place}"


def last_fatal(log: Path) -> str | None:
    try:
        text = log.read_text("utf-8", "replace")[-20_000:]
    except OSError:
        return None
    found = _FATAL.findall(text)
    return found[-1] if found else None


def postgres_at_rest(folder: Folder) -> EmbeddedStore:
    data = folder.postgres / "data"
    try:
        if not data.exists():
            made = find_postgres()
            return EmbeddedStore(DATABASE, str(data), f"PostgreSQL {made.major}")
        major = int((data / "PG_VERSION").read_text("ascii"))
        binaries = find_postgres(major)
    except EmbeddedError as error:
        return EmbeddedStore(DATABASE, str(data), missing=error.message)
    except OSError as error:
        why = f"{error.strerror}: {error.filename}"
        return EmbeddedStore(DATABASE, str(data), broken=why)
    except ValueError:
        return EmbeddedStore(
            DATABASE, str(data), broken="PG_VERSION has no version in it"
        )
    program = f"PostgreSQL {binaries.major}"
    broken = _broken(data, binaries)
    return EmbeddedStore(
        DATABASE, str(data), program, broken=broken, made_by=str(major)
    )


def _broken(data: Path, binaries: PostgresBinaries) -> str | None:
    """What is wrong with the data, as far as it can be seen without starting."""
    for name in _VITAL:
        if not (data / name).exists():
            return f"{name} is missing"
    try:
        said = subprocess.run(
            [binaries.path("pg_controldata"), "-D", str(data)],
            capture_output=True,
            text=True,
            env={**bare_environment(), "LC_ALL": "C"},
            timeout=_TOOL_S,
        )
    except (OSError, subprocess.SubprocessError):
        # Not every installation has the tool.
        return None
    if said.returncode != 0:
        return said.stderr.strip() or "its control file cannot be read"
    words = said.stdout + said.stderr
    is_torn = "CRC" in words or "checksum does not match" in words
    return "its control file is damaged" if is_torn else None


def redis_at_rest(folder: Folder) -> EmbeddedStore:
    try:
        binary = find_redis()
    except EmbeddedError as error:
        return EmbeddedStore(REDIS, str(folder.redis), missing=error.message)
    is_standin = binary.kind is RedisKind.FAKE
    name = str(binary.program or "a stand-in")
    return EmbeddedStore(REDIS, str(folder.redis), name, is_standin=is_standin)

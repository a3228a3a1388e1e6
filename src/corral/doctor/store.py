"""PostgreSQL and Redis: those of the settings, or those of the data folder."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from corral.core.redis_version import RedisVersion
from corral.doctor.check import CheckResult, ok, problem, warn
from corral.doctor.machine import judge_clock
from corral.doctor.role import Role
from corral.embedded.binaries import (
    PostgresBinaries,
    RedisKind,
    find_postgres,
    find_redis,
)
from corral.embedded.folder import Folder
from corral.embedded.postgres import DATABASE as DATABASE_NAME
from corral.embedded.postgres import USER
from corral.errors import EmbeddedError, EngineUnavailable, StoreUnavailable
from corral.no_answer import NoAnswerReason
from corral.process.keep_alive import bare_environment

if TYPE_CHECKING:
    from pydantic import SecretStr

    from corral.engine.checkup import RedisCheckup
    from corral.settings import Settings
    from corral.store.postgres.checkup import DatabaseCheckup

DATABASE, REDIS = "database", "redis"
_PRODUCT = {DATABASE: "PostgreSQL", REDIS: "Redis"}
OLDEST_POSTGRES = 13
# A manager holds a dozen; fewer than these are soon none.
_FEW_CONNECTIONS = 10
_NEARLY_FULL = 0.9
_TOOL_S = 5.0
# What no PostgreSQL can start without.
_VITAL = ("PG_VERSION", "global/pg_control", "pg_wal", "base")
_FATAL = re.compile(r"(?:FATAL|PANIC): +(.*)")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store's URL and the variable it came from."""

    url: str
    setting: str


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store's address; `setting` is the variable that named it.

    `setting` is empty for one that `corral up` runs, whose log is `log`.
    """

    name: str
    where: str
    setting: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class EmbeddedStore:
    """A store in the data folder, while nobody runs it.

    `missing` says what program is not there, `broken` what is wrong with the data;
    `made_by` is empty before the first start.
    """

    name: str
    folder: str
    program: str = ""
    missing: str | None = None
    broken: str | None = None
    made_by: str = ""
    is_standin: bool = False


def check_database(config: Settings, role: Role) -> list[CheckResult]:
    return database(_given(config, "database_url"), role)


def check_redis(config: Settings, role: Role) -> list[CheckResult]:
    return redis(_given(config, "redis_url"), role, is_trusted=config.redis_trusted)


def _given(config: Settings, name: str) -> StoreUrl | None:
    url: SecretStr | None = getattr(config, name)
    return StoreUrl(url.get_secret_value(), config.variable(name)) if url else None


def database(given: StoreUrl | None, role: Role) -> list[CheckResult]:
    """The database that the settings name, else the one in the data folder."""
    from corral.store.postgres.checkup import examine, place_of

    if given is not None:
        url = given.url
        place = StoreAddress(DATABASE, place_of(url), given.setting)
    elif not role.is_running:
        return [judge_at_rest(postgres_at_rest(role.folder))]
    else:
        log = role.folder.logs / "postgres.log"
        place = StoreAddress(DATABASE, str(role.folder.postgres), log=str(log))
        running = postgres_url(role.folder)
        if running is None:
            said = last_fatal(log) or "it does not run"
            return [judge_silent(place, NoAnswerReason.OTHER, said)]
        url = running
    began = time.time()
    try:
        told = asyncio.run(examine(url))
    except StoreUnavailable as error:
        return [judge_silent(place, error.details["silence"], error.message)]
    ended = time.time()
    lines = judge_database(place, told)
    if given is None:
        # One machine, one clock.
        return lines
    ahead_s = told.now.timestamp() - (began + ended) / 2
    return [*lines, judge_clock("the database", ahead_s, (ended - began) / 2)]


def redis(
    given: StoreUrl | None, role: Role, *, is_trusted: bool = False
) -> list[CheckResult]:
    """The Redis that the settings name, else the one in the data folder."""
    from corral.engine.celery_app import URL_FILE
    from corral.engine.checkup import examine, place_of

    if given is not None:
        url = given.url
        place = StoreAddress(REDIS, place_of(url), given.setting)
    elif not role.is_running:
        return [judge_at_rest(redis_at_rest(role.folder))]
    else:
        log = role.folder.logs / "redis.log"
        place = StoreAddress(REDIS, str(role.folder.redis), log=str(log))
        try:
            url = (role.folder.home / URL_FILE).read_text(encoding="utf-8").strip()
        except OSError as error:
            return [judge_silent(place, NoAnswerReason.OTHER, str(error))]
    try:
        return judge_redis(place, examine(url), is_trusted=is_trusted)
    except EngineUnavailable as error:
        return [judge_silent(place, error.details["silence"], error.message)]


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


def judge_at_rest(told: EmbeddedStore) -> CheckResult:
    if told.missing:
        found, _, fix = told.missing.partition(": ")
        return problem(told.name, found, fix or "see docs/settings.md")
    if told.broken:
        found = f"the data in {told.folder} cannot be used: {told.broken}"
        fix = "put a backup in its place, or start anew with another folder (--home)"
        return problem(told.name, found, fix)
    if told.is_standin:
        found = "no Redis on this machine: a slow stand-in would be used"
        return warn(told.name, found, "install redis-server or valkey-server")
    state = f", its data in {told.folder} are whole" if told.made_by else ""
    return ok(told.name, f"'corral up' will run {told.program}{state}")


def judge_silent(place: StoreAddress, why: NoAnswerReason, said: str) -> CheckResult:
    """One line for a store that gave no useful answer."""
    product = _PRODUCT[place.name]
    found, fix = _silence(place, product, why)
    found = found or f"{product} at {place.where} does not answer: {said}"
    if not place.setting:
        fix = f"see {place.log}, then 'corral down' and 'corral up'"
    elif place.setting not in fix:
        fix += f" ({place.setting})"
    return problem(place.name, " ".join(found.split()), fix, silence=str(why))


def _silence(place: StoreAddress, product: str, why: NoAnswerReason) -> tuple[str, str]:
    where = place.where
    start = f"start {product} there, or correct {place.setting}"
    start += f"; without it 'corral up' runs a {product} of its own"
    address = f"correct {place.setting}"
    words = {
        NoAnswerReason.REFUSED: (f"nothing listens at {where}", start),
        NoAnswerReason.UNKNOWN_HOST: (f"no such host: {where}", address),
        NoAnswerReason.SLOW: (
            f"{where} takes no connection, or does not answer as {product} does",
            f"look for a firewall or another program there, or {address}",
        ),
        NoAnswerReason.STRANGER: (f"what answers at {where} is not {product}", address),
        NoAnswerReason.UNTRUSTED: (
            f"the certificate of {where} is not trusted",
            "name its authority in SSL_CERT_FILE",
        ),
        NoAnswerReason.LOGIN: (
            f"{product} at {where} refuses the user or the password",
            f"{address}: user and password stand in it",
        ),
        NoAnswerReason.ABSENT: (
            f"{product} at {where} has no database of that name",
            "make it with createdb, or correct the name",
        ),
        NoAnswerReason.STARTING: (
            f"{product} at {where} is starting or stopping",
            "try again in a moment; see its log if it stays so",
        ),
        NoAnswerReason.CROWDED: (
            f"{product} at {where} has no connection left",
            "raise its limit of connections, or end what holds them",
        ),
    }
    return words.get(why, ("", f"see its log, or {address}"))


def judge_database(place: StoreAddress, told: DatabaseCheckup) -> list[CheckResult]:
    """Lines about a PostgreSQL that answered; the first sums it up."""
    faults = list(_database_faults(told))
    if any(faults):
        return faults
    free = told.connections - told.used
    schema = f"schema {told.schema}" if told.schema else "no tables yet"
    found = f"PostgreSQL {told.version} at {place.where}, {schema}, writable, "
    found += f"{free} of {told.connections} connections free"
    facts = {"version": told.version, "schema": told.schema, "free": free}
    return [ok(DATABASE, found, **facts)]


def _database_faults(told: DatabaseCheckup) -> Iterator[CheckResult]:
    if told.major < OLDEST_POSTGRES:
        found = f"PostgreSQL {told.version} is too old"
        yield problem(DATABASE, found, f"use version {OLDEST_POSTGRES} or newer")
    if not told.is_known:
        is_newer = str(told.schema) > told.head
        age = "newer" if is_newer else "much older"
        found = f"its schema {told.schema} was made by a {age} Corral than this"
        fix = f"install that Corral; this one knows {told.head}"
        yield problem(DATABASE, found, fix)
    elif told.schema not in (None, told.head):
        found = f"its schema is {told.schema}, this Corral needs {told.head}"
        yield warn(DATABASE, found, "make a backup; the next start changes the schema")
    if told.refusal:
        found = f"nothing can be written: {told.refusal}"
        fix = "use the primary server, free its disk, or give the user its rights"
        yield problem(DATABASE, found, fix)
    free = told.connections - told.used
    if free < _FEW_CONNECTIONS:
        found = f"only {free} of {told.connections} connections are free"
        yield warn(DATABASE, found, "raise max_connections of PostgreSQL")


def judge_redis(
    place: StoreAddress, told: RedisCheckup, *, is_trusted: bool = False
) -> list[CheckResult]:
    """Lines about a Redis that answered; the first sums it up."""
    faults = [*_redis_dangers(told, is_trusted), *_redis_faults(told)]
    if any(faults):
        return faults
    found = f"{told.server} {told.version or 'of unknown version'} at {place.where}, "
    limit = f" of {told.memory_mb:.0f}" if told.memory_mb else ""
    found += f"writable, {told.used_mb:.0f}{limit} MB used, "
    found += (
        "kept on disk" if told.is_kept else "in memory only (no task depends on it)"
    )
    return [ok(REDIS, found, version=told.version, used_mb=told.used_mb)]


def _redis_dangers(told: RedisCheckup, is_trusted: bool) -> Iterator[CheckResult]:
    """Why nodes, which run other people's code, must not be let near it."""
    version = RedisVersion(told.server, told.version)
    if version.is_known and not version.is_safe:
        found = f"{version} is too old: it lacks security fixes"
        if is_trusted:
            found += ", by its number; CORRAL_REDIS_TRUSTED says that they are in it"
            yield warn(REDIS, found, f"use {version.floors}, and unset it")
        else:
            fix = f"use {version.floors}; CORRAL_REDIS_TRUSTED=1 where your "
            fix += "distribution has put them in without a new number"
            yield problem(REDIS, found, fix)
    if told.is_open:
        found = "it asks nobody for a password: whoever reaches it has all rights"
        fix = "set requirepass there and name the password in CORRAL_REDIS_URL"
        yield problem(REDIS, found, f"{fix}; until then no node is carried to it")


def _redis_faults(told: RedisCheckup) -> Iterator[CheckResult]:
    if told.is_replica:
        found = "this Redis is a replica, which takes no writes"
        yield problem(REDIS, found, "name the primary in CORRAL_REDIS_URL")
    elif told.refusal:
        fix = "free its memory or disk, or give the user its rights"
        yield problem(REDIS, f"nothing can be written: {told.refusal}", fix)
    if told.memory_mb and told.used_mb > _NEARLY_FULL * told.memory_mb:
        found = f"{told.used_mb:.0f} of {told.memory_mb:.0f} MB of its memory are used"
        yield warn(REDIS, found, "raise maxmemory")
    if told.memory_mb and told.eviction != "noeviction":
        found = f"it throws keys away when full (maxmemory-policy {told.eviction})"
        yield warn(
            REDIS, found, "set maxmemory-policy noeviction: orders would be lost"
        )

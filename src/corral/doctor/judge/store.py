"""Lines about PostgreSQL and Redis: how they were reached, and what they told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corral.doctor.result import CheckResult, ok, problem, warn
from corral.no_answer import NoAnswerReason

if TYPE_CHECKING:
    from corral.engine.checkup import RedisCheckup as RedisCheckup
    from corral.store.postgres.checkup import DatabaseCheckup as DatabaseCheckup

DATABASE, REDIS = "database", "redis"
_PRODUCT = {DATABASE: "PostgreSQL", REDIS: "Redis"}
# Per-node users need the access lists of 6.2.
OLDEST_REDIS = (6, 2)
OLDEST_POSTGRES = 13
# A manager holds a dozen; fewer than these are soon none.
_FEW_CONNECTIONS = 10
_NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store's address; `setting` is the variable that named it.

    `setting` is empty for one that `corral up` runs, whose log is `log`.
    """

    name: str
    where: str
    setting: str = ""
    log: str = ""


def unreachable(place: StoreAddress, why: NoAnswerReason, said: str) -> CheckResult:
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


def database(place: StoreAddress, told: DatabaseCheckup) -> list[CheckResult]:
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


def redis(place: StoreAddress, told: RedisCheckup) -> list[CheckResult]:
    """Lines about a Redis that answered; the first sums it up."""
    faults = list(_redis_faults(told))
    if any(faults):
        return faults
    found = f"{told.server} {told.version or 'of unknown version'} at {place.where}, "
    limit = f" of {told.memory_mb:.0f}" if told.memory_mb else ""
    found += f"writable, {told.used_mb:.0f}{limit} MB used, "
    found += (
        "kept on disk" if told.is_kept else "in memory only (no task depends on it)"
    )
    return [ok(REDIS, found, version=told.version, used_mb=told.used_mb)]


def _redis_faults(told: RedisCheckup) -> Iterator[CheckResult]:
    if told.version and told.server == "Redis" and _number(told) < OLDEST_REDIS:
        wanted = ".".join(map(str, OLDEST_REDIS))
        found = f"Redis {told.version} is too old"
        yield problem(REDIS, found, f"use {wanted} or newer, or Valkey")
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


def _number(told: RedisCheckup) -> tuple[int, ...]:
    parts = told.version.split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())

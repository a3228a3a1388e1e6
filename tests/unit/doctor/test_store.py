"""PostgreSQL and Redis: why they do not answer, and what is wrong when they do."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from corral.doctor import role as look_role
from corral.doctor.check import CheckStatus
from corral.doctor.store import (
    DATABASE,
    REDIS,
    StoreAddress,
    StoreUrl,
    database,
    judge_database,
    judge_redis,
    judge_silent,
    last_fatal,
    postgres_url,
    redis,
)
from corral.embedded.folder import Folder
from corral.embedded.redis import open_redis
from corral.embedded.server import running
from corral.engine.checkup import RedisCheckup as RedisCheckup
from corral.engine.checkup import place_of as redis_place
from corral.no_answer import NoAnswerReason
from corral.store.postgres.checkup import DatabaseCheckup as DatabaseCheckup
from corral.store.postgres.checkup import place_of as database_place
from tests.unit.client.stand_in import serve

GOOD = DatabaseCheckup("18.1", 18, datetime(2026, 1, 1, tzinfo=UTC), 57, 8, None, None)
OWN = StoreAddress(DATABASE, "/data/postgres", log="/data/logs/postgres.log")
GIVEN = StoreAddress(REDIS, "box:6379/0", "REDIS_URL")


@pytest.fixture
def closed() -> str:
    """A port where nobody listens."""
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{link.getsockname()[1]}"


@pytest.mark.parametrize("why", list(NoAnswerReason))
def test_every_silence_is_one_line_that_names_the_setting(why: NoAnswerReason) -> None:
    line = judge_silent(GIVEN, why, "it said\nsomething")
    assert line.verdict is CheckStatus.PROBLEM
    assert "\n" not in line.found + line.fix
    assert "box:6379" in line.found
    assert "REDIS_URL" in line.fix
    own = judge_silent(OWN, why, "it said something")
    assert "corral up" in own.fix
    assert "postgres.log" in own.fix


def test_a_good_database_is_one_line() -> None:
    (line,) = judge_database(OWN, GOOD)
    assert line.verdict is CheckStatus.OK
    assert "49 of 57 connections free" in line.found


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({"schema": "0001"}, CheckStatus.PROBLEM, "much older Corral"),
        ({"schema": "9999"}, CheckStatus.PROBLEM, "newer Corral"),
        ({"refusal": "read-only"}, CheckStatus.PROBLEM, "written: read-only"),
        ({"used": 50}, CheckStatus.WARN, "only 7 of 57"),
        ({"version": "9.6", "major": 9}, CheckStatus.PROBLEM, "too old"),
    ],
)
def test_a_database_that_will_not_do_says_why(
    change: dict[str, object], verdict: CheckStatus, words: str
) -> None:
    (line,) = judge_database(OWN, replace(GOOD, **change))  # type: ignore[arg-type]
    assert line.verdict is verdict
    assert words in line.found
    assert line.fix


@pytest.mark.parametrize(
    ("told", "verdict", "words"),
    [
        (RedisCheckup(version="7.2.11"), CheckStatus.OK, "Redis 7.2.11 at box:6379/0"),
        (RedisCheckup("Valkey", "8.0.6"), CheckStatus.OK, "Valkey 8.0.6"),
        (RedisCheckup("Valkey", "8.0.5"), CheckStatus.PROBLEM, "Valkey 8.0.5 is too"),
        (RedisCheckup(is_open=True), CheckStatus.PROBLEM, "asks nobody"),
        (RedisCheckup(), CheckStatus.OK, "unknown version"),
        (RedisCheckup(version="5.0.7"), CheckStatus.PROBLEM, "too old"),
        (RedisCheckup(is_replica=True), CheckStatus.PROBLEM, "replica"),
        (RedisCheckup(refusal="OOM"), CheckStatus.PROBLEM, "written: OOM"),
        (RedisCheckup(used_mb=95, memory_mb=100), CheckStatus.WARN, "95 of 100 MB"),
        (
            RedisCheckup(memory_mb=9, eviction="allkeys-lru"),
            CheckStatus.WARN,
            "allkeys",
        ),
        (RedisCheckup(eviction="allkeys-lru"), CheckStatus.OK, "writable"),
    ],
)
def test_redis_is_judged_by_what_it_tells(
    told: RedisCheckup, verdict: CheckStatus, words: str
) -> None:
    (line,) = judge_redis(GIVEN, told)
    assert line.verdict is verdict
    assert words in line.found


def test_closed_port_and_unknown_host_are_told_apart(
    closed: str, tmp_path: Path
) -> None:
    role = look_role.look(tmp_path)
    (line,) = database(
        StoreUrl(f"postgresql://u:geheim@{closed}/x", "CLUSTER_DB"), role
    )
    assert f"nothing listens at {closed}/x" in line.found
    (line,) = redis(StoreUrl(f"redis://:geheim@{closed}/0", "REDIS_URL"), role)
    assert f"nothing listens at {closed}/0" in line.found
    (line,) = redis(StoreUrl("redis://nowhere.invalid/0", "REDIS_URL"), role)
    assert line.found == "no such host: nowhere.invalid:6379/0"


def test_a_port_that_speaks_http_is_not_redis(tmp_path: Path) -> None:
    with serve() as web:
        place = web.url.removeprefix("http://")
        (line,) = redis(StoreUrl(f"redis://{place}/0", "X"), look_role.look(tmp_path))
    assert line.found == f"what answers at {place}/0 is not Redis"


def test_wrong_and_right_password_of_a_real_redis(tmp_path: Path) -> None:
    folder, role = Folder(tmp_path), look_role.look(tmp_path)
    folder.make()
    server = open_redis(folder, tcp=True)
    with running(server, tmp_path / "redis.log"):
        (line,) = redis(StoreUrl(server.url, "REDIS_URL"), role)
        assert line.verdict is CheckStatus.OK
        for wrong in (server.url.replace(server.password, "guess"), _bare(server.url)):
            (line,) = redis(StoreUrl(wrong, "REDIS_URL"), role)
            assert "refuses the user or the password" in line.found
            assert "guess" not in f"{line}"


def _bare(url: str) -> str:
    return f"redis://{url.rpartition('@')[2]}"


def test_places_have_no_password_in_them() -> None:
    assert database_place("postgresql://u:p@db.lan/x") == "db.lan:5432/x"
    assert database_place("postgresql://u:p@/x?host=/run") == "/run (x)"
    assert redis_place("redis+socket://:p@/run/r.sock?virtual_host=1") == "/run/r.sock"
    assert redis_place("redis://:p@box:x/0") == "an address that cannot be read"


def test_a_server_that_never_came_up_is_explained_by_its_last_words(
    tmp_path: Path,
) -> None:
    assert postgres_url(Folder(tmp_path)) is None
    log = tmp_path / "postgres.log"
    assert last_fatal(log) is None
    log.write_text("LOG:  x\nFATAL:  no pg_control\nLOG:  ended\n")
    assert last_fatal(log) == "no pg_control"

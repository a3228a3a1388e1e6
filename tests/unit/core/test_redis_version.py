from __future__ import annotations

import pytest

from corral.core.redis_version import RedisVersion, program_version, told_version


@pytest.mark.parametrize(
    ("server", "number", "is_safe"),
    [
        ("Redis", "6.2.20", False),
        ("Redis", "7.0.15", False),
        ("Redis", "7.2.10", False),
        ("Redis", "7.2.11", True),
        ("Redis", "7.4.5", False),
        ("Redis", "7.4.6", True),
        ("Redis", "8.0.3", False),
        ("Redis", "8.0.4", True),
        ("Redis", "8.1.9", False),
        ("Redis", "8.2.1", False),
        ("Redis", "8.2.2", True),
        ("Redis", "8.4.0", True),
        ("Redis", "9", False),
        ("Redis", "9.0", True),
        ("Redis", "", False),
        ("Redis", "latest", False),
        ("Valkey", "7.2.10", False),
        ("Valkey", "7.2.11", True),
        ("Valkey", "8.0.5", False),
        ("Valkey", "8.0.6", True),
        ("Valkey", "8.1.3", False),
        ("Valkey", "8.1.4", True),
        ("Valkey", "9.0.0", True),
        ("Valkey", "9.1.2", True),
        ("Valkey", "10.0.0-rc1", True),
    ],
)
def test_a_version_is_safe_from_the_fix_of_its_line_on(
    server: str, number: str, is_safe: bool
) -> None:
    assert RedisVersion(server, number).is_safe is is_safe


def test_valkey_is_judged_by_its_own_number() -> None:
    told = told_version({"redis_version": "7.2.4", "valkey_version": "9.1.2"})
    assert (told, told.is_safe) == (RedisVersion("Valkey", "9.1.2"), True)
    plain = told_version({"redis_version": "7.2.4"})
    assert (str(plain), plain.is_safe) == ("Redis 7.2.4", False)
    assert not told_version({}).is_known


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Redis server v=6.2.14 sha=4:0 malloc=libc", RedisVersion("Redis", "6.2.14")),
        ("Valkey server v=9.1.2 sha=0:1 bits=64", RedisVersion("Valkey", "9.1.2")),
        ("KeyDB server v=6.3.4 sha=0", None),
        ("", None),
    ],
)
def test_a_program_says_which_it_is(said: str, version: RedisVersion | None) -> None:
    assert program_version(said) == version

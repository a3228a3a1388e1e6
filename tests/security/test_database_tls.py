"""What is between the manager and its PostgreSQL reads keys, tasks and secrets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from corral import settings
from corral.errors import SettingsError
from tests import warm

URL = "postgresql://me:hush@{}"


def checked(**flags: object) -> None:
    settings.load(**flags).require_encrypted_database()


@pytest.mark.parametrize(
    "place",
    [
        "db.example/x",
        "10.0.0.5:5432/x?sslmode=prefer",
        "db.example/x?sslmode=disable",
        "localhost,db.example/x",
        "[fd00::1]:5432/x",
        "/x?host=db.example",
    ],
)
def test_l8_plain_text_to_another_machine_is_refused(place: str) -> None:
    with pytest.raises(SettingsError) as caught:
        checked(database_url=URL.format(place))
    assert "sslmode=verify-full" in caught.value.message
    assert "CORRAL_DATABASE_PLAINTEXT" in caught.value.message
    assert "hush" not in caught.value.message
    checked(database_url=URL.format(place), database_plaintext=True)


@pytest.mark.parametrize(
    "place",
    [
        "127.0.0.1:5432/x",
        "localhost/x",
        "[::1]:5432/x",
        "/x?host=/run/postgresql",
        "%2Frun%2Fpostgresql/x",
        "db.example/x?sslmode=verify-full",
        "db.example/x?sslmode=require",
    ],
)
def test_l8_sockets_loopback_and_tls_are_taken(place: str) -> None:
    checked(database_url=URL.format(place))
    checked()


def test_l8_host_given_apart_is_refused_by_its_own_name() -> None:
    with pytest.raises(SettingsError, match=r"^--database-host='db\.example'"):
        checked(database_host="db.example")


def test_l8_manager_does_not_start(tmp_path: Path) -> None:
    variables = {
        "PYTHONPATH": ":".join(sys.path),
        "CORRAL_HOME": str(tmp_path),
        "CORRAL_DATABASE_URL": URL.format("db.example/x"),
        "CORRAL_REDIS_URL": "redis://127.0.0.1:1/0",
    }
    process = warm.corral("manager", "serve", variables=variables, folder=tmp_path)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "CORRAL_DATABASE_PLAINTEXT" in err

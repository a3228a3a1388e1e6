from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import SecretStr, ValidationError
from redis.connection import parse_url
from sqlalchemy import make_url
from typer.testing import CliRunner

from corral import setting_alias as alias
from corral.cli.config import config
from corral.errors import SettingsError
from corral.settings import Settings, is_loopback, load, secret_variables

ROOT = Path(__file__).parent.parent.parent
FIELDS = alias.declared(Settings)
VARIABLES = {v: n for n, f in FIELDS.items() for v in alias.variables(n, f)}
HARD = "p@ss/w:rd%#1"


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of ours, no files here, a data folder of this test's own."""
    for name in list(os.environ):
        if name.removesuffix("_FILE") in VARIABLES or name.startswith("CORRAL_"):
            monkeypatch.delenv(name)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("corral.settings.user_data_path", lambda *_, **__: tmp_path)


def text(secret: SecretStr | None) -> str:
    assert secret is not None
    return secret.get_secret_value()


def refusal(**flags: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**flags)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_nearest_source_wins_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load()
    assert (settings.port, settings.origin("port")) == (8002, "default")
    Path("corral.toml").write_text("port = 1001")
    assert (load().port, load().origin("port")) == (1001, "corral.toml")
    Path("config").mkdir()
    Path("config/cluster-manager-db.env").write_text("CLUSTER_MANAGER_PORT=1002")
    assert load().port == 1002
    assert load().origin("port") == "config/cluster-manager-db.env"
    Path(".env").write_text("API_PORT=1003")
    assert (load().port, load().origin("port")) == (1003, ".env")
    monkeypatch.setenv("API_PORT", "1004")
    assert (load().port, load().origin("port")) == (1004, "environment API_PORT")
    assert (load(port=1005).port, load(port=1005).origin("port")) == (1005, "flag")
    assert load(port=None).port == 1004


def test_corral_toml_of_the_data_folder_counts_only_where_there_is_none_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corral.toml").write_text("max_workers = 3")
    assert load().max_workers == 3
    other = tmp_path / "other"
    other.mkdir()
    (other / "corral.toml").write_text("max_workers = 4")
    monkeypatch.setenv("CORRAL_HOME", str(other))
    assert load().max_workers == 4
    assert load(home=tmp_path).max_workers == 3
    Path("corral.toml").write_text("[gpu]\ndevices = [0, 1]")
    assert (load().max_workers, load().gpu_devices) == (10, ("0", "1"))


def test_empty_values_count_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_PORT", "")
    monkeypatch.setenv("CLUSTER_MANAGER_PORT", "  ")
    monkeypatch.setenv("API_PORT", "8000")
    monkeypatch.setenv("REDIS_PASSWORD", "")
    assert (load().port, load().redis_url) == (8000, None)


DOCUMENTED = [
    ("CLUSTER_DB_HOST", "db", "database_host", "db"),
    ("CLUSTER_DB_PORT", "5433", "database_port", 5433),
    ("CLUSTER_DB_NAME", "n", "database_name", "n"),
    ("CLUSTER_DB_USER", "u", "database_user", "u"),
    ("CLUSTER_DB_PASSWORD", "p", "database_password", SecretStr("p")),
    ("CLUSTER_MANAGER_HOST", "localhost", "host", "localhost"),
    ("CLUSTER_MANAGER_PORT", "8010", "port", 8010),
    ("DEBUG", "true", "debug", True),
    ("MODEL_CACHE_DIR", "/models", "model_cache_dir", Path("/models").absolute()),
    ("REDIS_URL", "redis://r", "redis_url", SecretStr("redis://r")),
    ("CELERY_RESULT_BACKEND", "rpc://", "celery_result_backend", SecretStr("rpc://")),
    ("GPU_MEMORY_FRACTION", "0.5", "gpu_memory_fraction", 0.5),
    ("WORKER_CONCURRENCY", "4", "worker_concurrency", 4),
    ("MAX_CONCURRENT_TASKS", "4", "worker_concurrency", 4),
    ("GPU_DEVICES", "0,2", "gpu_devices", ("0", "2")),
    ("MODEL_MANAGER_URL", "http://mm:8001/", "model_manager_url", "http://mm:8001"),
    ("REDIS_HOST", "r", "redis_host", "r"),
    ("REDIS_PORT", "6380", "redis_port", 6380),
    ("REDIS_DB", "3", "redis_db", 3),
    ("REDIS_PASSWORD", "p", "redis_password", SecretStr("p")),
    ("MAX_WORKERS", "11", "max_workers", 11),
    ("TASK_TIMEOUT", "301", "task_timeout_s", 301.0),
    ("HEARTBEAT_INTERVAL", "31", "heartbeat_interval_s", 31.0),
    ("GPU_MEMORY_THRESHOLD", "0.7", "gpu_memory_threshold", 0.7),
    ("MODEL_CACHE_SIZE", "6", "model_cache_size", 6),
    ("AUTO_SCALE_ENABLED", "true", "auto_scale_enabled", True),
    ("API_HOST", "0.0.0.0", "host", "0.0.0.0"),
    ("API_PORT", "8000", "port", 8000),
    ("API_KEY", "dev-key", "bootstrap_api_key", SecretStr("dev-key")),
    ("WORKER_REGISTRATION_TIMEOUT", "61", "worker_registration_timeout_s", 61.0),
    ("LOG_LEVEL", "warn", "log_level", "WARNING"),
    ("LOG_FORMAT", "text", "log_format", "text"),
    (
        "MINDTRACE_CLUSTER__DEFAULT_REDIS_URL",
        "redis://r:1",
        "redis_url",
        SecretStr("redis://r:1"),
    ),
    (
        "MINDTRACE_WORKER__DEFAULT_REDIS_URL",
        "redis://r:2",
        "redis_url",
        SecretStr("redis://r:2"),
    ),
    ("MINDTRACE_CLUSTER__MINIO_ENDPOINT", "m:9000", "minio_endpoint", "m:9000"),
    ("MINDTRACE_CLUSTER__MINIO_ACCESS_KEY", "a", "minio_access_key", SecretStr("a")),
    ("MINDTRACE_CLUSTER__MINIO_SECRET_KEY", "s", "minio_secret_key", SecretStr("s")),
    ("MINDTRACE_CLUSTER__MINIO_BUCKET", "b", "minio_bucket", "b"),
    ("CLUSTER_MANAGER_URL", "https://m", "manager_url", "https://m"),
    ("SSL_CERT_PATH", "/c", "ssl_cert_path", Path("/c").absolute()),
    ("SSL_KEY_PATH", "/k", "ssl_key_path", Path("/k").absolute()),
]


@pytest.mark.parametrize(("variable", "raw", "name", "value"), DOCUMENTED)
def test_documented_variable_sets_its_setting(
    variable: str, raw: str, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable.startswith("SSL_"):
        monkeypatch.setenv("SSL_CERT_PATH", "/c")
        monkeypatch.setenv("SSL_KEY_PATH", "/k")
    monkeypatch.setenv(variable, raw)
    settings = load()
    assert getattr(settings, name) == value
    assert settings.origin(name) == f"environment {variable}"


@pytest.mark.parametrize(
    "name", ["host", "port", "worker_concurrency", "redis_url", "manager_url"]
)
def test_among_several_names_the_first_of_the_list_counts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"redis_url": "redis://h", "manager_url": "http://h", "host": "h"}
    for variable in reversed(alias.variables(name, FIELDS[name])):
        monkeypatch.setenv(variable, value.get(name, "7"))
        assert load().origin(name) == f"environment {variable}"


@pytest.mark.spec("A17")
def test_database_parts_make_the_url_the_driver_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("config").mkdir()
    Path("config/cluster-manager-db.env").write_text(
        "CLUSTER_DB_HOST=db\nCLUSTER_DB_PORT=5433\nCLUSTER_DB_NAME=my db\n"
        f"CLUSTER_DB_USER=me\nCLUSTER_DB_PASSWORD='{HARD}'\n"
    )
    url = make_url(text(load().database_url))
    assert (url.host, url.port, url.username) == ("db", 5433, "me")
    assert (url.database, url.password) == ("my db", HARD)
    monkeypatch.setenv("CLUSTER_DB_HOST", "db2")
    assert make_url(text(load().database_url)).host == "db2"
    assert "CLUSTER_DB_HOST" in load().origin("database_url")


@pytest.mark.spec("C30", "D2")
def test_redis_parts_make_the_url_the_driver_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_HOST", "::1")
    monkeypatch.setenv("REDIS_PORT", "6380")
    monkeypatch.setenv("REDIS_DB", "2")
    monkeypatch.setenv("REDIS_PASSWORD", HARD)
    read = parse_url(text(load().redis_url))
    assert (read["host"], read["port"], read["db"]) == ("::1", 6380, 2)
    assert read["password"] == HARD


@pytest.mark.spec("E22")
def test_a_url_wins_over_parts_and_the_clusters_over_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_HOST", "part")
    monkeypatch.setenv("MINDTRACE_WORKER__DEFAULT_REDIS_URL", "redis://worker:6379")
    assert parse_url(text(load().redis_url))["host"] == "worker"
    monkeypatch.setenv("MINDTRACE_CLUSTER__DEFAULT_REDIS_URL", "redis://cluster:6379")
    assert parse_url(text(load().redis_url))["host"] == "cluster"
    Path("corral.toml").write_text('database_url = "postgresql://whole/x"')
    monkeypatch.setenv("CLUSTER_DB_HOST", "part")
    assert make_url(text(load().database_url)).host == "whole"


def test_a_url_without_a_password_takes_the_one_given_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", HARD)
    read = parse_url(text(load(redis_url="redis://r:6380/4").redis_url))
    assert (read["host"], read["db"], read["password"]) == ("r", 4, HARD)
    read = parse_url(text(load(redis_url="redis://:own@r").redis_url))
    assert read["password"] == "own"
    monkeypatch.setenv("CLUSTER_DB_PASSWORD", HARD)
    url = make_url(text(load(database_url="postgresql://m%40e@db/x").database_url))
    assert (url.username, url.password, url.host) == ("m@e", HARD, "db")


@pytest.mark.spec("B28")
def test_a_model_manager_is_named_by_its_api_or_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_MANAGER_URL", "http://models:8001")
    monkeypatch.setenv("MODEL_MANAGER_PATH", "shared")
    settings = load()
    assert settings.model_manager_url == "http://models:8001"
    assert settings.model_manager_path == tmp_path / "here" / "shared"
    assert settings.model_cache_dir == tmp_path / "models"


@pytest.mark.parametrize("variable", sorted(secret_variables()))
def test_every_secret_can_be_read_from_a_file(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = VARIABLES[variable]
    secret = {"redis_url": "redis://h", "database_url": "postgresql://h/x"}.get(name)
    file = tmp_path / "secret"
    file.write_text(f"{secret or 'hush'}\n")
    monkeypatch.setenv(f"{variable}_FILE", str(file))
    assert text(getattr(load(), name)) == (secret or "hush")
    assert load().origin(name) == f"environment {variable}_FILE"
    assert not load().unknown


def test_a_secret_file_that_is_missing_or_empty_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    monkeypatch.setenv("API_KEY_FILE", str(file))
    assert refusal().startswith(f"API_KEY_FILE='{file}' (environment)")
    file.write_text("\n")
    assert "a readable file that is not empty" in refusal()
    monkeypatch.setenv("API_KEY", "given")
    assert text(load().bootstrap_api_key) == "given"
    Path("corral.toml").write_text("api_key_file = 'key.txt'")
    Path("key.txt").write_text("from-toml")
    assert text(load().api_key) == "from-toml"


def test_no_secret_is_ever_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in secret_variables():
        monkeypatch.setenv(variable, "canary17")
    for name, scheme in (("REDIS", "redis"), ("DATABASE", "postgresql")):
        monkeypatch.setenv(f"CORRAL_{name}_URL", f"{scheme}://me:canary17@h/1")
    monkeypatch.setenv("CORRAL_MANAGER_URL", "https://me:canary17@h")
    settings = load()
    rows = {row.name: row for row in settings.rows()}
    assert "canary17" not in f"{list(rows.values())}"
    assert rows["redis_url"].value == "redis://me:***@h/1"
    assert rows["api_key"].value == "********"
    assert "canary17" not in repr(load(manager_url="http://h"))
    for broken in ("redis://:canary17", "http://me:canary17@h", "canary17"):
        assert "canary17" not in refusal(redis_url=broken)


@pytest.mark.parametrize(
    ("variable", "raw", "shown", "allowed"),
    [
        ("API_PORT", "99999", "'99999'", "a whole number from 1 to 65535"),
        ("CORRAL_PORT", "http", "'http'", "a whole number from 1 to 65535"),
        ("CORRAL_PORT", "0", "'0'", "a whole number from 1 to 65535"),
        ("API_HOST", "a b", "'a b'", "a host name or an IP address"),
        ("API_KEY", "a b", "'********'", "printable ASCII without spaces"),
        ("REDIS_URL", "http://h", "'http://********'", "a URL like redis://"),
        ("REDIS_URL", "redis://h:x", "'redis://********'", "a URL like redis://"),
        ("CORRAL_DATABASE_URL", "sqlite:///x", "'sqlite://***", "postgresql://"),
        ("CORRAL_MANAGER_URL", "manager", "'manager'", "a URL like http://"),
        ("GPU_MEMORY_FRACTION", "1.5", "'1.5'", "a number from 0.01 to 1"),
        ("GPU_DEVICES", "0,0", "'0,0'", "a list like 0,1"),
        ("MAX_WORKERS", "2.5", "'2.5'", "a whole number from 1"),
        ("TASK_TIMEOUT", "nan", "'nan'", "seconds from 0.1"),
        ("TASK_TIMEOUT", "5 weeks", "'5 weeks'", "or like 90s, 5m, 2h, 30d"),
        ("DEBUG", "maybe", "'maybe'", "true or false"),
        ("LOG_FORMAT", "x\ny", r"'x\ny'", "one of json, text"),
        ("LOG_LEVEL", "loud", "'loud'", "one of DEBUG, INFO, WARNING"),
        ("CORRAL_TASK_BODY_LIMIT", "1", "'1'", "a size from 1024"),
        ("CORRAL_CLUSTER_NAME", "../x", "'../x'", "1 to 63 letters"),
        ("CORRAL_BEAT_S", "30", "'30'", "less than CORRAL_SUSPECT_AFTER_S=15"),
        ("CORRAL_LOST_AFTER_S", "15", "'15'", "more than CORRAL_SUSPECT_AFTER_S=15"),
        ("CORRAL_NO_OVERLAP_REQUEUE_S", "9", "'9'", "CORRAL_NO_OVERLAP_KILL_S=15"),
        ("SSL_CERT_PATH", "/c", "'/c'", "given together with CORRAL_SSL_KEY_PATH"),
    ],
)
def test_a_wrong_value_is_one_line_with_variable_value_and_what_is_allowed(
    variable: str,
    raw: str,
    shown: str,
    allowed: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, raw)
    line = refusal()
    assert line.startswith(f"{variable}={shown}")
    assert allowed in line

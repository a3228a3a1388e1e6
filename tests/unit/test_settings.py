from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from redis import connection
from sqlalchemy import make_url

from corral.errors import SettingsError
from corral.settings import Settings, is_loopback, load, secret_variables
from corral.settings import sources as alias

ROOT = Path(__file__).parent.parent.parent
FIELDS = alias.declared(Settings)
VARIABLES = {v: n for n, f in FIELDS.items() for v in alias.variables(n, f)}
parse_url: Any = connection.parse_url
RURL = "redis://r:6379/1"
HARD = "p@ss/w:rd%#1"


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of ours, no files here, a data folder of this test's own."""
    for name in list(os.environ):
        if name.removesuffix("_FILE") in VARIABLES or name.startswith("CORRAL_"):
            monkeypatch.delenv(name)
    for name in ("XDG_DATA_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def text(secret: SecretStr | None) -> str:
    assert secret is not None
    return secret.get_secret_value()


def refusal(**flags: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**flags)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_nearest_source_wins_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (load().port, load().origin("port")) == (8002, "default")
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
    home = load().home
    for folder, count in ((home, 3), (tmp_path / "other", 4)):
        folder.mkdir(parents=True)
        (folder / "corral.toml").write_text(f"max_workers = {count}")
    assert load().max_workers == 3
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path / "other"))
    assert load().max_workers == 4
    assert load(home=home).max_workers == 3
    Path("corral.toml").write_text("[gpu]\ndevices = [0, 1]")
    assert (load().max_workers, load().gpu_devices) == (10, ("0", "1"))


def test_empty_values_count_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"CORRAL_PORT": "", "CLUSTER_MANAGER_PORT": "  ", "REDIS_PASSWORD": ""}
    for name, value in {**given, "API_PORT": "8000"}.items():
        monkeypatch.setenv(name, value)
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
    ("CORRAL_MODEL_DIR", "/models", "model_cache_dir", Path("/models").absolute()),
    ("REDIS_URL", RURL, "redis_url", SecretStr(RURL)),
    ("CELERY_RESULT_BACKEND", "rpc://", "celery_result_backend", SecretStr("rpc://")),
    ("GPU_MEMORY_FRACTION", "0.5", "gpu_memory_fraction", 0.5),
    ("WORKER_CONCURRENCY", "4", "worker_concurrency", 4),
    ("MAX_CONCURRENT_TASKS", "4", "worker_concurrency", 4),
    ("GPU_DEVICES", "0,2", "gpu_devices", ("0", "2")),
    ("TASK_MANAGER_URL", "http://tm:8004/", "task_manager_url", "http://tm:8004"),
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
    ("MINDTRACE_CLUSTER__DEFAULT_REDIS_URL", RURL, "redis_url", SecretStr(RURL)),
    ("MINDTRACE_WORKER__DEFAULT_REDIS_URL", RURL, "redis_url", SecretStr(RURL)),
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
    ("value", "names"),
    [
        ("h", "CORRAL_HOST CLUSTER_MANAGER_HOST API_HOST"),
        ("7", "CORRAL_PORT CLUSTER_MANAGER_PORT API_PORT"),
        ("7", "CORRAL_WORKER_CONCURRENCY WORKER_CONCURRENCY MAX_CONCURRENT_TASKS"),
        (RURL, "CORRAL_REDIS_URL REDIS_URL MINDTRACE_CLUSTER__DEFAULT_REDIS_URL"),
    ],
)
def test_among_several_names_the_first_of_the_list_counts(
    value: str, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in reversed(names.split()):
        monkeypatch.setenv(variable, value)
        assert load().origin(VARIABLES[variable]) == f"environment {variable}"


@pytest.mark.spec("A17")
def test_database_parts_make_the_url_that_is_used(
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
def test_redis_parts_make_the_url_the_driver_reads() -> None:
    parts = f"REDIS_HOST=::1\nREDIS_PORT=6380\nREDIS_DB=2\nREDIS_PASSWORD='{HARD}'"
    Path(".env").write_text(parts)
    read = parse_url(text(load().redis_url))
    assert (read["host"], read["port"], read["db"]) == ("::1", 6380, 2)
    assert read["password"] == HARD


@pytest.mark.spec("E22")
def test_a_url_wins_over_parts_and_the_clusters_over_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(".env").write_text("REDIS_HOST=part\nCLUSTER_DB_HOST=part")
    monkeypatch.setenv("MINDTRACE_WORKER__DEFAULT_REDIS_URL", "redis://worker:6379")
    assert parse_url(text(load().redis_url))["host"] == "worker"
    monkeypatch.setenv("MINDTRACE_CLUSTER__DEFAULT_REDIS_URL", "redis://cluster:6379")
    assert parse_url(text(load().redis_url))["host"] == "cluster"
    Path("corral.toml").write_text('database_url = "postgresql://whole/x"')
    assert make_url(text(load().database_url)).host == "whole"


def test_a_url_without_a_password_takes_the_one_given_apart() -> None:
    Path(".env").write_text(f"REDIS_PASSWORD='{HARD}'\nCLUSTER_DB_PASSWORD='{HARD}'")
    read = parse_url(text(load(redis_url="redis://r:6380/4").redis_url))
    assert (read["host"], read["db"], read["password"]) == ("r", 4, HARD)
    read = parse_url(text(load(redis_url="redis://:own@r").redis_url))
    assert read["password"] == "own"
    url = make_url(text(load(database_url="postgresql://m%40e@db/x").database_url))
    assert (url.username, url.password, url.host) == ("m@e", HARD, "db")


def test_a_model_manager_is_named_by_its_api_or_by_its_folder() -> None:
    Path(".env").write_text("MODEL_MANAGER_URL=http://mm\nMODEL_MANAGER_PATH=shared")
    settings = load()
    assert settings.model_manager_url == "http://mm"
    assert settings.model_manager_path == Path("shared").absolute()
    assert settings.model_cache_dir == settings.home / "models"


@pytest.mark.parametrize("variable", sorted(secret_variables()))
def test_every_secret_can_be_read_from_a_file(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = VARIABLES[variable]
    urls = {"redis_url": "redis://h", "database_url": "postgresql://h/x"}
    secret = {**urls, "alert_webhooks": "https://h/x"}.get(name)
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
    monkeypatch.setenv("CORRAL_ALERT_WEBHOOKS", "https://h/canary17")
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
        ("CORRAL_STRATEGY", "best", "'best'", "one of smith, least_loaded, weighted_"),
        ("CORRAL_TASK_BODY_LIMIT", "1", "'1'", "a size from 1024"),
        ("CORRAL_CLUSTER_NAME", "../x", "'../x'", "1 to 63 letters"),
        ("CORRAL_BEAT_S", "30", "'30'", "less than CORRAL_SUSPECT_AFTER_S=15"),
        ("CORRAL_LOST_AFTER_S", "15", "'15'", "more than CORRAL_SUSPECT_AFTER_S=15"),
        ("CORRAL_NO_OVERLAP_REQUEUE_S", "9", "'9'", "CORRAL_NO_OVERLAP_KILL_S=15"),
        ("SSL_CERT_PATH", "/c", "'/c'", "given together with CORRAL_SSL_KEY_PATH"),
    ],
)
def test_a_wrong_value_is_one_line_with_variable_value_and_what_is_allowed(
    variable: str, raw: str, shown: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, raw)
    line = refusal()
    assert line.startswith(f"{variable}={shown}")
    assert allowed in line


def test_a_wrong_value_says_which_file_or_flag_it_is_in() -> None:
    assert refusal(port=0).startswith("--port='0' (flag)")
    Path("corral.toml").write_text("port = 'x'")
    assert refusal().startswith("port='x' (corral.toml)")
    Path(".env").write_text("API_PORT=y")
    assert refusal().startswith("API_PORT='y' (.env)")
    Path(".env").write_bytes(b"\xff")
    assert refusal().startswith(".env cannot be read")
    Path(".env").unlink()
    Path("corral.toml").write_text("port = = 1")
    assert refusal().startswith("corral.toml cannot be read: Invalid value (at line 1")


def test_variables_kubernetes_sets_for_its_services_are_not_taken_for_ours() -> None:
    names = ("CORRAL_PORT", "REDIS_PORT", "CORRAL_PORT_8002_TCP", "API_PORT")
    lines = [f"{name}=tcp://10.0.0.5:8002" for name in names]
    Path(".env").write_text("\n".join([*lines, "CORRAL_SERVICE_HOST=10.0.0.5"]))
    assert (load().port, load().redis_url, load().unknown) == (8002, None, ())


def test_a_name_that_is_no_setting_gets_a_warning_with_the_nearest() -> None:
    Path(".env").write_text("CORRAL_TASK_TIMEOUT=3\nSTRANGER=1")
    Path("corral.toml").write_text("prot = 1")
    variable, key = sorted(load().unknown)
    assert variable.startswith("CORRAL_TASK_TIMEOUT (.env) is not a setting;")
    assert variable.endswith("did you mean CORRAL_TASK_TIMEOUT_S?")
    assert key == "prot (corral.toml) is not a setting; did you mean port?"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_plain_text_is_fine_on_loopback(host: str) -> None:
    assert is_loopback(host)
    load(host=host, insecure=True).require_loopback_or_tls()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gpu1", "localhost.io"])
def test_beyond_loopback_needs_tls_or_a_clear_word(host: str, tmp_path: Path) -> None:
    assert not is_loopback(host)
    with pytest.raises(SettingsError, match=f"--host='{host}'.*must be a loopback"):
        load(host=host).require_loopback_or_tls()
    load(host=host, allow_plaintext=True).require_loopback_or_tls()
    pair = {"ssl_cert_path": tmp_path / "c", "ssl_key_path": tmp_path / "k"}
    with pytest.raises(SettingsError, match="a readable file"):
        load(host=host, **pair).require_loopback_or_tls()
    for path in pair.values():
        path.touch()
    load(host=host, **pair).require_loopback_or_tls()
    assert "127.0.0.1 when keys are switched off" in refusal(host=host, insecure=True)


def test_values_made_of_others_follow_them() -> None:
    assert load(host="0.0.0.0", port=9).manager_url == "http://127.0.0.1:9"
    tls = load(host="::", ssl_cert_path="c", ssl_key_path="k")
    assert tls.manager_url == "https://[::1]:8002"
    assert load(debug=True).log_level == "DEBUG"
    assert load(debug=True, log_level="error").log_level == "ERROR"
    assert load(keep_tasks_s="2h", task_body_limit="2MiB").keep_tasks_s == 7200
    assert load(gpu_devices="none").gpu_devices == ()


def test_settings_are_frozen_and_every_default_is_allowed() -> None:
    settings = load()
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1  # type: ignore[misc]
    assert load(**{n: getattr(settings, n) for n in FIELDS}).port == settings.port
    with pytest.raises(TypeError, match="no such setting: prot"):
        load(prot=1)


def test_importing_reads_nothing() -> None:
    broken = {**os.environ, "CORRAL_PORT": "x", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", "import corral.settings"]
    subprocess.run(command, env=broken, check=True, timeout=60)


@pytest.mark.spec("B17")
def test_the_example_file_has_every_setting_with_its_default() -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert all(re.search(rf"\b{variable}\b", example) for variable in VARIABLES)
    Path(".env").write_text(re.sub(r"^#(CORRAL_\w+=)", r"\1", example, flags=re.M))
    settings = load()
    assert settings.origin("port") == ".env"
    assert not settings.unknown
    Path(".env").unlink()
    plain = load()
    assert [getattr(settings, n) for n in FIELDS] == [getattr(plain, n) for n in FIELDS]


def test_the_documentation_lists_names_in_their_order() -> None:
    lines = (ROOT / "docs/settings.md").read_text(encoding="utf-8").splitlines()
    for name, field in FIELDS.items():
        first, *others = (f"`{v}`" for v in alias.variables(name, field))
        row = next(line.split(" | ") for line in lines if line.startswith(f"| {first}"))
        assert row[2].strip() == ", ".join(others)
        assert ("Secret." in row[3]) is alias.is_secret(field)

"""`corral ingress`: what it makes of the settings, and what it refuses to start on."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from corral import settings
from corral.cli.main import app
from corral.cli.serve.ingress import config_of
from corral.errors import SettingsError


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No `.env` and no corral.toml of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path))


@pytest.mark.spec("B13")
def test_settings_name_queues_tasks_and_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://:secret@broker/0")
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "rediss://results/1")
    told = config_of(
        settings.load(
            celery_queues="celery, gpu_queue", celery_tasks="a.b,shop.echo=echo"
        )
    )
    assert told.broker_url == "redis://:secret@broker/0"
    assert told.result_url == "rediss://results/1"
    assert told.queues == ("celery", "gpu_queue")
    assert dict(told.tasks) == {"a.b": "", "shop.echo": "echo"}


def test_own_redis_is_the_broker_when_none_is_named() -> None:
    told = config_of(settings.load(redis_url="redis://own/0"))
    assert (told.broker_url, told.result_url) == ("redis://own/0", None)


def test_other_backend_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "db+sqlite:///secret")
    with pytest.raises(SettingsError, match="CELERY_RESULT_BACKEND") as refused:
        config_of(settings.load(celery_broker_url="redis://b"))
    assert "secret" not in refused.value.message


def test_without_a_broker_one_line_says_what_to_set() -> None:
    ran = CliRunner().invoke(app, ["ingress"])
    assert ran.exit_code == 2
    (line,) = ran.stderr.splitlines()
    assert "CORRAL_CELERY_BROKER_URL" in line

"""Where the client finds the manager and its key, and to whom it shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.client.http.manager_address import find_target
from corral.errors import SettingsError


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as home and as working directory, and no settings."""
    for name in ("CORRAL_API_KEY", "CORRAL_MANAGER_URL", "CORRAL_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path))
    return tmp_path


def _write_key(folder: Path) -> None:
    (folder / "admin.key").write_text("corral_a_file\n", encoding="ascii")


def test_arguments_come_before_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_MANAGER_URL", "http://elsewhere:1")
    monkeypatch.setenv("CORRAL_API_KEY", "corral_a_environment")
    target = find_target("http://127.0.0.1:9/", "corral_a_argument")
    assert (target.url, target.api_key) == ("http://127.0.0.1:9", "corral_a_argument")


def test_settings_come_before_the_key_file(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_key(bare)
    assert find_target().api_key == "corral_a_file"
    monkeypatch.setenv("CORRAL_API_KEY", "corral_a_environment")
    monkeypatch.setenv("CORRAL_MANAGER_URL", "http://head:8002")
    target = find_target()
    assert (target.url, target.api_key) == ("http://head:8002", "corral_a_environment")


def test_without_any_key_none_is_shown() -> None:
    assert find_target("http://127.0.0.1:9").api_key is None


def test_key_file_of_this_machine_is_not_shown_to_an_address_typed_in(
    bare: Path,
) -> None:
    _write_key(bare)
    assert find_target("http://127.0.0.1:9").api_key == "corral_a_file"
    assert find_target("http://localhost:9").api_key == "corral_a_file"
    assert find_target("http://stranger.example:9").api_key is None
    named = find_target("http://stranger.example:9", home=bare)
    assert named.api_key == "corral_a_file"


def test_key_is_not_in_the_text_of_the_target() -> None:
    assert "secret" not in repr(find_target("http://h:1", "corral_a_secret"))


@pytest.mark.parametrize("url", ["head:8002", "ftp://head", "http://", "http://h:x"])
def test_address_that_is_no_url_is_refused_with_its_name(url: str) -> None:
    with pytest.raises(SettingsError, match="CORRAL_MANAGER_URL"):
        find_target(url, "k")
    with pytest.raises(SettingsError):
        find_target(url)


def test_key_that_cannot_be_sent_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingsError, match="CORRAL_API_KEY") as caught:
        find_target("http://h:1", "corral_é\nX: y")
    assert "é" not in caught.value.message

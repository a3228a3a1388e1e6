"""Where code may come from, as texts: no network, no disk."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.tasks.environment import (
    ArchiveEnvironment,
    ContainerEnvironment,
    Environment,
    GitEnvironment,
    check_repo_url,
    from_plain,
    to_plain,
)
from corral.errors import InvalidField

DIGEST = "ab" * 32
URL = "https://example.org/team/code.git"


@pytest.mark.parametrize(
    "environment",
    [
        GitEnvironment(URL),
        GitEnvironment(URL, "main", "a" * 40, "sub", "sub", True, True),
        ArchiveEnvironment(DIGEST, "sub", "project"),
        ContainerEnvironment("busybox:1", "/w", {"/a": "/b"}, {"A": "1"}, ("gpu0",)),
    ],
)
def test_an_environment_is_the_same_after_its_travel(environment: Environment) -> None:
    told = json.loads(json.dumps(to_plain(environment)))
    assert from_plain(told) == environment


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "https://example.org:8443/code",
        "ssh://git@example.org:22/code.git",
        "git@example.org:team/code.git",
        "example.org:code",
        "file:///srv/code.git",
        "/srv/code.git",
    ],
)
def test_a_repository_is_named_by_https_ssh_or_a_path(url: str) -> None:
    check_repo_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch x",
        "-oProxyCommand=x:y",
        "ext::sh -c x",
        "fd::17",
        "https::https://example.org/x",
        "http://example.org/x",
        "git://example.org/x",
        "HTTPS://example.org/x",
        "FILE:///srv/x",
        "ftp://example.org/x",
        "ssh://-oProxyCommand=x/y",
        "ssh://git@-oProxyCommand=x/y",
        "git@-oProxyCommand=x:y",
        "https://user:secret@example.org/x",
        "https://token@example.org/x",
        "ssh://git:secret@example.org/x",
        "https:///x",
        "https://[example.org/x",
        "https://example.org:port/x",
        "https://example.org/a b",
        "https://example.org/a\nb",
        "../x",
        "x",
        "",
    ],
)
def test_other_protocols_options_and_credentials_are_refused(url: str) -> None:
    with pytest.raises(InvalidField) as caught:
        from_plain({"git": {"repo_url": url}})
    assert caught.value.field == "environment.git.repo_url"
    assert "secret" not in caught.value.message


@given(st.text(), st.sampled_from(["", "https://", "ssh://", "git@", "file://"]))
def test_any_text_is_a_url_or_an_invalid_field(text: str, start: str) -> None:
    try:
        check_repo_url(start + text)
    except InvalidField:
        return
    assert not (start + text).startswith("-")
    assert "::" not in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("branch", "-b"),
        ("branch", "a..b"),
        ("branch", "a b"),
        ("branch", "a@{1}"),
        ("branch", "a:b"),
        ("commit", "main"),
        ("commit", "abc"),
        ("commit", "--all"),
        ("working_dir", "../x"),
        ("working_dir", "a/../../x"),
        ("working_dir", "/etc"),
        ("working_dir", "a\\b"),
        ("working_dir", "a\0b"),
        ("project", ".."),
        ("submodules", "yes"),
        ("lfs", 1),
        ("depth", 1),
    ],
)
def test_a_wrong_field_of_a_repository_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        from_plain({"git": {"repo_url": URL, field: value}})
    assert caught.value.field == f"environment.git.{field}"


@pytest.mark.parametrize(
    ("told", "field"),
    [
        (None, "environment"),
        ({}, "environment"),
        ({"git": {"repo_url": URL}, "archive": {"digest": DIGEST}}, "environment"),
        ({"conda": {}}, "environment"),
        ({"git": URL}, "environment.git"),
        ({"git": {}}, "environment.git.repo_url"),
        ({"archive": {"digest": "AB" * 32}}, "environment.archive.digest"),
        ({"docker": {"image": "-v"}}, "environment.docker.image"),
        ({"docker": {"image": "a", "devices": "x"}}, "environment.docker.devices"),
        ({"docker": {"image": "a", "volumes": ["x"]}}, "environment.docker.volumes"),
    ],
)
def test_what_is_no_environment_is_refused_by_field(told: Any, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        from_plain(told)
    assert caught.value.field == field


def test_folders_are_written_in_one_way() -> None:
    read = from_plain({"git": {"repo_url": URL, "working_dir": "./a//b/"}})
    assert isinstance(read, GitEnvironment)
    assert read.working_dir == "a/b"
    here = from_plain({"git": {"repo_url": URL, "working_dir": "."}})
    assert isinstance(here, GitEnvironment)
    assert here.working_dir == ""

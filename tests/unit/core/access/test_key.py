"""Keys: what one may do, how one is written, what is kept of it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.access.key import (
    Key,
    Scope,
    digest_secret,
    matches,
    split_key,
    write_key,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ids = st.text("0123456789abcdef", min_size=1, max_size=12)
secrets = st.text(min_size=1, max_size=60)


@given(ids, secrets)
def test_a_key_text_gives_back_its_id_and_secret(key_id: str, secret: str) -> None:
    assert split_key(write_key(key_id, secret)) == (key_id, secret)


@given(secrets, secrets)
def test_only_the_same_secret_matches(right: str, tried: str) -> None:
    key = Key("k", digest_secret(right), Scope.READ)
    assert matches(key, right)
    assert matches(key, tried) is (tried == right)


@given(st.text(st.characters(codec="ascii"), min_size=1, max_size=60))
def test_what_is_kept_of_a_secret_is_its_sha256_and_not_the_secret(
    secret: str,
) -> None:
    digest = digest_secret(secret)
    assert digest == hashlib.sha256(secret.encode()).hexdigest()
    kept = repr(Key("k", digest, Scope.READ))
    other = repr(Key("k", digest_secret(f"not {secret}"), Scope.READ))
    assert secret not in kept.replace(digest, "") or secret in other


@pytest.mark.parametrize(
    "text", ["", "x", "corral", "corral_", "corral__", "corral_a_", "other_a_b", "_a_b"]
)
def test_a_text_of_another_shape_is_no_key(text: str) -> None:
    assert split_key(text) is None


def test_a_lone_surrogate_in_a_secret_can_be_compared() -> None:
    assert not matches(Key("k", digest_secret("x"), Scope.READ), "\ud800")


LADDER = [Scope.READ, Scope.SUBMIT, Scope.OPERATE, Scope.ADMIN]


@pytest.mark.parametrize("held", LADDER)
@pytest.mark.parametrize("asked", LADDER)
def test_a_scope_includes_those_below_it_and_none_above(
    held: Scope, asked: Scope
) -> None:
    key = Key("k", "", held)
    assert key.allows(asked) is (LADDER.index(asked) <= LADDER.index(held))


@pytest.mark.parametrize("held", Scope)
@pytest.mark.parametrize("asked", [Scope.NODE, Scope.JOIN])
def test_a_node_and_a_join_token_are_nothing_but_themselves(
    held: Scope, asked: Scope
) -> None:
    assert Key("k", "", held).allows(asked) is (held is asked)
    assert Key("k", "", asked).allows(held) is (held is asked)


def test_a_key_is_good_until_it_expires_is_revoked_or_used_up() -> None:
    key = Key("k", "", Scope.JOIN, expires_at=NOW, uses_left=1)
    before = NOW - timedelta(seconds=1)
    assert key.is_valid(before)
    assert not key.is_valid(NOW)
    assert not replace(key, revoked_at=before).is_valid(before)
    assert not replace(key, uses_left=0).is_valid(before)
    assert replace(key, uses_left=None, expires_at=None).is_valid(NOW)

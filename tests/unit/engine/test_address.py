from __future__ import annotations

import pytest

from corral.engine.address import parse_address


@pytest.mark.parametrize(
    ("url", "username", "password"),
    [
        ("redis://:p%40ss%3Aw%2Fd@h:6379/0", None, "p@ss:w/d"),
        ("redis://us%40er:secret@h/1", "us@er", "secret"),
        ("redis://h", None, None),
        ("redis+socket://:p%2Bq@/run/redis.sock?virtual_host=2", None, "p+q"),
    ],
)
def test_a_login_is_read_as_it_was_before_it_was_put_into_the_url(
    url: str, username: str | None, password: str | None
) -> None:
    where = parse_address(url)
    assert (where.username, where.password) == (username, password)

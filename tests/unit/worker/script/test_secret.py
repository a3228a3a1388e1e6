"""No secret leaves in a script's output, however it is written or cut into pieces."""

from __future__ import annotations

import base64
import json
import traceback
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.errors import EnvironmentFailed
from corral.worker.script.secrets import Mask, Masked

VALUE = 's3cr3t "Value"/42+ü'
KEY = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\nshrt\nabc\n-----END KEY-----\n"
RAW = VALUE.encode()


def passed(mask: Mask, *pieces: bytes) -> bytes:
    out: list[bytes] = []
    masked = Masked(mask, lambda _, data: out.append(data))
    for piece in pieces:
        masked.feed("stdout", piece)
    masked.close()
    return b"".join(out)


@pytest.mark.parametrize(
    "written",
    [
        RAW,
        base64.b64encode(RAW),
        base64.urlsafe_b64encode(RAW),
        RAW.hex().encode(),
        RAW.hex().upper().encode(),
        quote(VALUE, safe="").encode(),
        json.dumps(VALUE)[1:-1].encode(),
        json.dumps(VALUE, ensure_ascii=False)[1:-1].encode(),
    ],
)
def test_a_secret_is_covered_however_it_is_written(written: bytes) -> None:
    shown = passed(Mask([VALUE]), b"before " + written + b" after\n")
    assert shown.startswith(b"before ***")
    assert shown.endswith(b" after\n")
    assert len(shown) <= len(b"before *** after\n") + 3


@pytest.mark.parametrize("prefix", [b"user:", b"me:", b"a:", b""])
def test_a_secret_inside_a_longer_base64_is_covered(prefix: bytes) -> None:
    """As in an Authorization header."""
    written = base64.b64encode(prefix + RAW + b":tail")
    shown = passed(Mask([VALUE]), written)
    assert b"***" in shown
    left = len(shown.replace(b"***", b""))
    assert left <= (len(prefix) + len(b":tail")) * 4 // 3 + 6


def test_every_line_of_a_long_secret_is_covered() -> None:
    shown = passed(Mask([KEY]), b"x MIIEpAIBAAKCAQEA shrt abc\n")
    assert shown == b"x *** *** abc\n"


def test_wrapped_base64_of_a_long_secret_is_covered() -> None:
    secret = "".join(chr(33 + i % 90) for i in range(300))
    shown = passed(Mask([secret]), base64.encodebytes(secret.encode()))
    assert set(shown.split()) <= {b"***"}


def test_the_longer_of_two_secrets_wins() -> None:
    mask = Mask(["abcd", "abcdefgh"])
    assert passed(mask, b"abcd", b"efgh abcd") == b"*** ***"


def test_no_secrets_leave_the_output_as_it_is() -> None:
    assert passed(Mask([]), b"abc", b"def") == b"abcdef"
    assert passed(Mask(["ab", ""]), b"abc") == b"abc"


def test_what_cannot_become_a_secret_is_not_held_back() -> None:
    out: list[bytes] = []
    masked = Masked(Mask([VALUE]), lambda _, data: out.append(data))
    masked.feed("stdout", b"prompt> ")
    assert out == [b"prompt> "]
    masked.feed("stdout", b"s3cr")
    assert out == [b"prompt> "]
    masked.feed("stdout", b"aper")
    assert b"".join(out) == b"prompt> s3craper"


words = st.lists(st.text("ab", min_size=4, max_size=7), min_size=1, max_size=3)
texts = st.lists(st.text("ab-", max_size=9).map(str.encode), max_size=12)


@given(words, texts)
def test_pieces_show_no_more_than_the_whole(
    values: list[str], cut: list[bytes]
) -> None:
    mask = Mask(values)
    shown = passed(mask, *cut)
    assert not [v for v in values if v.encode() in shown]
    # What is left is what was printed, with something covered.
    kept = [part for part in shown.split(b"***") if part]
    assert all(part in b"".join(cut) for part in kept)
    if not any(v.encode() in b"".join(cut) for v in values):
        assert shown == b"".join(cut)


def fail() -> None:
    with Mask([VALUE]).errors():
        try:
            raise ValueError(VALUE)
        except ValueError as error:
            raise EnvironmentFailed(f"no {VALUE}", output=f"o {VALUE}") from error


def test_an_error_says_no_secret_and_neither_does_its_cause() -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        fail()
    assert caught.value.message == "no ***"
    assert caught.value.output == "o ***"
    shown = "".join(traceback.format_exception(caught.value))
    assert VALUE not in shown

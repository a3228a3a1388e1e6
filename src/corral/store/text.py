"""What PostgreSQL's text can hold: all of Unicode but U+0000 and lone surrogates."""

from __future__ import annotations

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def is_storable(text: str) -> bool:
    return _UNSTORABLE.search(text) is None


def clean(text: str) -> str:
    """`text` with each character that cannot be stored shown as U+FFFD.

    For what is kept to be read by people (errors, titles); what must come back
    exactly is refused instead.
    """
    return _UNSTORABLE.sub("\ufffd", text)


def clean_or_none(text: str | None) -> str | None:
    return None if text is None else clean(text)

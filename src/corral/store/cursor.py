"""Cursors of task lists: opaque to callers, the seq of the last task to us."""

from __future__ import annotations

import base64

from corral.errors import InvalidField


def write_cursor(seq: int) -> str:
    return base64.urlsafe_b64encode(str(seq).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> int:
    """The seq in a cursor.

    Raises:
        InvalidField: when it is not one of ours.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        seq = int(base64.urlsafe_b64decode(padded))
    except ValueError:
        seq = -1
    if not 0 <= seq < 2**63:
        raise InvalidField("cursor is not one that this list gave", field="cursor")
    return seq

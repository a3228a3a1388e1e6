"""Sorts what the driver raises into the three things a caller can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from corral.errors import BadRequest, CorralError, NotLeader, StoreUnavailable

# SQLSTATE classes. A row's data: 22 data, 23 constraint, 54 program limit.
_REFUSED = {"22", "23", "54"}
# The server's condition, cured by waiting or by an operator: 08 connection, 25 read
# only, 28 authorization, 3D no such database, 40 rolled back, 53 resources, 55 lock,
# 57 shut down or cancelled, 58 system.
_UNAVAILABLE = {"08", "25", "28", "3D", "40", "53", "55", "57", "58"}
_ROLLED_BACK = "40"

# The driver has an internal error of its own between a server's last words and the end
# of its connection.
_LOST = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, PoolTimeout)
DRIVER_ERRORS = (UnicodeError, asyncpg.PostgresError, DBAPIError, *_LOST)


def _origin(error: BaseException) -> BaseException:
    """The driver's own error inside what SQLAlchemy wrapped around it."""
    while isinstance(error, DBAPIError) or not isinstance(error, DRIVER_ERRORS):
        inner = error.__cause__ or getattr(error, "orig", None)
        if inner is None:
            break
        error = inner
    return error


def is_rolled_back(error: BaseException) -> bool:
    """A deadlock or the like: nothing was written, the same again may succeed."""
    return (getattr(error, "sqlstate", None) or "")[:2] == _ROLLED_BACK


def is_unsent(error: BaseException) -> bool:
    """The server has said its last words on this connection, and the driver did not
    even begin: nothing was written.
    """
    is_busy = isinstance(error, asyncpg.InternalClientError)
    return is_busy and "cannot switch to state" in str(error)


def translate(error: BaseException) -> CorralError | None:
    """Our error for the driver's; None for one that only a defect explains."""
    origin = _origin(error)
    message = str(origin) or type(origin).__name__
    kind = (getattr(origin, "sqlstate", None) or "")[:2]
    # The driver's refusal to encode a value is an InterfaceError and a ValueError.
    if kind in _REFUSED or isinstance(origin, ValueError):
        return BadRequest(f"the database refuses this: {message}")
    if kind in _UNAVAILABLE or isinstance(origin, _LOST):
        return StoreUnavailable(f"the database does not answer: {message}")
    return None


@contextmanager
def translated() -> Iterator[None]:
    """Raise our errors in place of the driver's."""
    try:
        yield
    except DRIVER_ERRORS as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error


def check_term(term: int, current: int) -> None:
    """Raises NotLeader for a deposed leader's term."""
    if term != current:
        raise NotLeader(
            f"term {term} is over, the current one is {current}", term=current
        )

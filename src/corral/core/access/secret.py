"""A named secret of the cluster, as it is kept: sealed. Its value is never in here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from corral.core.tasks.script import check_variable
from corral.errors import InvalidField

MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """`sealed` opens with the cluster key alone; see manager/access/secrets.py.

    `job_types` are those whose tasks may have it; all of them when empty.
    """

    name: str
    sealed: str
    job_types: tuple[str, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def allows(self, job_type: str) -> bool:
        return not self.job_types or job_type in self.job_types


def check_secret(name: str, value: str) -> None:
    """A name that can be a variable's, and a value that one can hold.

    Raises:
        InvalidField: which of them is wrong; the value is not in the message.
    """
    check_variable(name, "name")
    if not value or "\0" in value:
        raise InvalidField(
            "a secret has a value, and no NUL character in it", field="value"
        )
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        # Without its cause: that one has the value in it.
        raise InvalidField("a secret is text (UTF-8)", field="value") from None
    if size > MAX_BYTES:
        raise InvalidField(
            f"a secret has at most {MAX_BYTES} bytes; this one has {size}",
            field="value",
        )

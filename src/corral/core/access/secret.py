"""A named secret of the cluster, as it is kept: sealed. Its value is never in here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from corral.core.tasks.script import check_variable
from corral.errors import InvalidField

MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """`sealed` opens with the cluster key alone; see manager/access/secrets.py.

    `job_types` are those whose tasks may have it, `keys` the names of the keys that
    may submit them, `node_labels` what a node must have it may go to; whatever is
    empty keeps nobody out.
    """

    name: str
    sealed: str
    job_types: tuple[str, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None
    keys: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)

    def allows(self, job_types: Collection[str], owner: str) -> bool:
        """May a task have it that is run as these types, and is this owner's?"""
        is_type = not self.job_types or bool(job_types)
        kept_out = self.job_types and set(job_types) - set(self.job_types)
        return is_type and not kept_out and self.is_open_to(owner)

    def is_open_to(self, owner: str) -> bool:
        return not self.keys or owner in self.keys


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

"""The code a task brings along, as its payload names it. Fetches nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from corral.wire.orders import Item

FUNCTION_WORKER = "corral.worker.function:FunctionWorker"
STANDARD_WORKER = "corral.worker.function:StandardWorker"
# The supervisor cannot look at a class, so it knows by name who takes bundles, and
# which job types are done without one.
PLAIN_TYPES: dict[str, frozenset[str]] = {
    FUNCTION_WORKER: frozenset(),
    STANDARD_WORKER: frozenset({"echo"}),
}


class Bundle(NamedTuple):
    """An archive, the folder in it that modules are imported from, and who sent it.

    Two users may send the same code: what one left in a process is not for the other.
    """

    digest: str
    path: str = ""
    owner: str = ""

    @property
    def environment(self) -> dict[str, Any]:
        return {"archive": {"digest": self.digest, "working_dir": self.path}}


class _Called(msgspec.Struct):
    archive: str = ""
    path: str = ""


_decode = msgspec.json.Decoder(_Called).decode


def bundle_of(item: Item) -> Bundle | None:
    """None when its payload names none; what else is in it is not looked at."""
    try:
        called = _decode(item.payload)
    except msgspec.MsgspecError:
        return None
    if not called.archive:
        return None
    return Bundle(called.archive, called.path, item.owner)

"""The call for the scheduler's journal."""

from __future__ import annotations

from corral.client.exchange import Flow, get


def journal(since_s: float = 86_400.0) -> Flow[bytes]:
    """What the scheduler was told and decided, as lines of JSON.

    Args:
        since_s: At least the last so many seconds, as far as they are remembered.

    Raises:
        Conflict: The manager keeps no journal.
    """
    response = yield get("/cluster/journal", since_s=since_s)
    return response.body

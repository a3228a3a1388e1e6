"""/cluster/journal: what the scheduler was told and decided, as lines of JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse

from corral.api.deps import Caller, caller
from corral.api.describe import described
from corral.core.access.key import Scope
from corral.manager.insight.journal import journal_of

router = APIRouter()
MEDIA = "application/x-ndjson"
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]
_LINES = 500


def _described() -> dict[str, Any]:
    """As other routes are, but with lines where those have one JSON value."""
    said = described(dict, errors=(409, 422))
    done = said["openapi_extra"]["responses"]["200"]
    done["content"] = {MEDIA: done["content"].pop("application/json")}
    said["response_class"] = Response
    return said


@router.get(
    "/cluster/journal",
    summary="What the scheduler was told and decided, to be replayed",
    tags=["cluster"],
    **_described(),
)
async def journal(
    who: Admin,
    since_s: Annotated[
        float, Query(ge=0, le=1e9, description="at least the last so many seconds")
    ] = 86_400.0,
) -> Response:
    kept = journal_of(who.manager.cluster.scheduler)
    who.note("journal.read", "cluster")
    since = who.manager.clock.now().timestamp() - since_s
    return StreamingResponse(_parcels(kept.lines(since)), media_type=MEDIA)


async def _parcels(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Some lines at a time: what else there is to do is done between them."""
    while parcel := b"".join(islice(lines, _LINES)):
        yield parcel
        await asyncio.sleep(0)

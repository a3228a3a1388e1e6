"""What is left of an answer whose status is all that counts."""

from __future__ import annotations

import httpx

_ANSWER_BYTES = 64 * 1024


async def read_away(answer: httpx.Response) -> int:
    """Its status, read to its end so that the connection can be used again.

    A long answer is cut off instead: nobody waits for what is not looked at.
    """
    try:
        size = 0
        async for part in answer.aiter_raw():
            size += len(part)
            if size > _ANSWER_BYTES:
                break
    finally:
        await answer.aclose()
    return answer.status_code

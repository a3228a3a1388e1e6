"""Those who listen in `make bench-events`: many WebSockets in a process of their own.

Told by lines, answers with lines of JSON. The time an event was made stands in the id
of its task, so that nobody needs to ask when that was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect

PATH = "/ws?type=task_submitted"
KEY = "BENCH_KEY"
LAST_S = 10


class Data(msgspec.Struct):
    task_id: str


class Event(msgspec.Struct):
    event: str
    seq: int
    data: Data


class Frame(msgspec.Struct):
    """One event, or several under `batch`."""

    event: str
    seq: int
    data: msgspec.Raw


@dataclass(slots=True)
class Tally:
    """What one of them has heard."""

    events: int = 0
    frames: int = 0
    last: int = 0
    disorder: int = 0
    took_s: list[float] = field(default_factory=list)


_frame = msgspec.json.Decoder(Frame).decode
_events = msgspec.json.Decoder(list[Event]).decode
_data = msgspec.json.Decoder(Data).decode


def note(tally: Tally, text: str | bytes) -> None:
    now = time.time()
    frame = _frame(text)
    if frame.event == "hello":
        return
    rows = (
        [(e.seq, e.data.task_id) for e in _events(frame.data)]
        if frame.event == "batch"
        else [(frame.seq, _data(frame.data).task_id)]
    )
    tally.frames += 1
    for seq, task_id in rows:
        tally.disorder += seq <= tally.last
        tally.last = seq
        tally.events += 1
        tally.took_s.append(now - float(task_id.rpartition("-")[2]))


async def listen(url: str, opened: asyncio.Semaphore) -> ClientConnection:
    headers = {"Authorization": f"Bearer {os.environ[KEY]}"}
    async with opened:
        return await connect(
            url.replace("http", "ws", 1),
            additional_headers=headers,
            compression=None,
            proxy=None,
            open_timeout=60,
            ping_interval=None,
        )


async def read(connection: ClientConnection, tally: Tally) -> None:
    async for text in connection:
        note(tally, text)


async def main(url: str, count: int, *, is_plain: bool) -> None:
    url += PATH + ("" if is_plain else "&batch=true")
    tallies = [Tally() for _ in range(count)]
    opened = asyncio.Semaphore(32)
    found = await asyncio.gather(*(listen(url, opened) for _ in tallies))
    readers = [
        asyncio.create_task(read(connection, tally))
        for connection, tally in zip(found, tallies, strict=True)
    ]
    print(json.dumps({"ready": count}), flush=True)
    # One line: how many events there were. Then what is still on its way comes.
    wanted = int(await asyncio.to_thread(sys.stdin.readline) or 0)
    for _ in range(LAST_S * 10):
        if all(tally.events >= wanted for tally in tallies):
            break
        await asyncio.sleep(0.1)
    ended = sum(reader.done() for reader in readers)
    print(json.dumps(figures(tallies, wanted, ended)), flush=True)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*(connection.close() for connection in found))


def figures(tallies: list[Tally], wanted: int, ended: int) -> dict[str, Any]:
    took = sorted(s for tally in tallies for s in tally.took_s)
    heard = sum(tally.events for tally in tallies)

    def share(part: float) -> float:
        return took[min(int(len(took) * part), len(took) - 1)] * 1000 if took else 0.0

    return {
        "events_lost": sum(abs(wanted - tally.events) for tally in tallies),
        "events_out_of_order": sum(tally.disorder for tally in tallies),
        "listeners_ended": ended,
        "events_heard": heard,
        "events_per_frame": heard / max(sum(t.frames for t in tallies), 1),
        "update_p50_ms": share(0.5),
        "update_p95_ms": share(0.95),
        "update_max_ms": share(1.0),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    asyncio.run(main(options.url, options.count, is_plain=options.plain))

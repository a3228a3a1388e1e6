"""Events in memory: numbered, bounded, handed to each who listens at its own pace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from corral.core.access.key import Key, Scope
from corral.manager.events.broadcast import Broadcast
from corral.manager.events.filter import EventFilter, EventFormat
from corral.manager.events.listener import CloseReason, Listener, LiveConfig
from corral.manager.events.ring import ClusterFact, EventRing, TaskChange, TaskChanges
from tests.unit.api.world import StepClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("k", "", Scope.READ)


def change(task_id: str, event: str = "task_submitted", **more: Any) -> TaskChange:
    return TaskChange(event, task_id, "echo", "queued", 1, NOW, **more)


def fact(event: str = "x", text: str = "") -> ClusterFact:
    return ClusterFact(event, NOW, {"text": text})


def numbers(ring: EventRing, after: int) -> Iterator[int]:
    for entry in ring.since(after):
        rows = entry.changes if isinstance(entry, TaskChanges) else ()
        yield from (row.number for row in rows)
        if isinstance(entry, ClusterFact):
            yield entry.last


class Room:
    """A broadcast, and time that passes when told."""

    def __init__(self, **limits: Any) -> None:
        self.clock = StepClock()
        self.all = Broadcast(replace(LiveConfig(), **limits), self.clock)

    def listen(self, after: int | None = None, **wanted: Any) -> Listener:
        interest = EventFilter(**wanted)
        return self.all.listen(interest, EventFormat.BATCH, KEY, "127.0.0.1", after)


def heard(one: Listener) -> list[Any]:
    """What waits for one, read at once."""
    found = []
    while one.place < one.group.end:
        parts = one.group.frames[one.place - one.group.first]
        one.place, one.done = one.place + 1, parts.end
        found += [json.loads(part) for part in parts.parts]
    return found


def test_the_oldest_go_when_there_are_too_many_or_they_are_too_large() -> None:
    for ring in (EventRing(100, 5, 1 << 20), EventRing(100, 1000, 3000)):
        for _ in range(20):
            ring.add(fact(text="y" * 400))
        assert ring.has(100), "nothing goes before it was handed out"
        ring.close()
        assert not ring.has(100)
        kept = list(numbers(ring, ring.base))
        assert 0 < len(kept) <= 5
        assert kept == list(range(ring.base + 1, 121))


def test_changes_of_a_moment_stand_together_and_are_numbered_one_by_one() -> None:
    ring = EventRing(0, 100, 1 << 20)
    ring.change([change("a"), change("b")])
    ring.change([change("c")])
    ring.close()
    ring.change([change("d")])
    assert [len(entry) for entry in ring.since(0)] == [3, 1]
    assert list(numbers(ring, 1)) == [2, 3, 4]


def test_words_that_are_no_text_are_told_all_the_same() -> None:
    room = Room()
    one = room.listen()
    room.all.tell(fact(text="\ud800"))
    room.all.flush()
    assert heard(one)[0]["data"]["text"] == "\ud800"


def test_a_burst_is_no_reason_to_let_go_of_one_who_catches_up() -> None:
    room = Room(backlog_bytes=100_000)
    one = room.listen()
    for _ in range(3):
        room.all.tell_changes([change(str(n)) for n in range(2500)])
        room.all.flush()
        assert one.lag[1] > 100_000
        assert sum(len(frame["data"]) for frame in heard(one)) == 2500
        room.clock.step(10)
    assert one.why is None


def test_one_who_stays_behind_is_let_go_also_when_nothing_more_happens() -> None:
    room = Room(backlog_bytes=1000)
    slow, quick = room.listen(), room.listen()
    for _ in range(2):
        room.all.tell(fact(text="z" * 1000))
        room.all.flush()
    heard(quick)
    room.clock.step(1)
    room.all.look_after(lambda key: True)
    assert len(room.all.listeners) == 2
    room.clock.step(2)
    room.all.look_after(lambda key: True)
    assert slow.why is CloseReason.SLOW
    assert room.all.listeners == [quick]
    assert not quick.group.frames, "nobody needs them any more"


def test_one_who_leaves_twice_takes_nobody_along() -> None:
    room = Room()
    first = room.listen()
    room.all.leave(first)
    second = room.listen()
    room.all.leave(first)
    room.all.tell(fact())
    room.all.flush()
    assert [row["event"] for row in heard(second)] == ["x"]


def test_more_than_is_kept_at_once_reaches_those_who_listen() -> None:
    room = Room(events=10)
    one = room.listen()
    for n in range(30):
        room.all.tell_changes([change(f"{n}")])
        room.all.tell(fact())
    room.all.flush()
    assert sum(len(frame["data"]) for frame in heard(one)) == 60


@pytest.mark.parametrize("face", EventFormat)
def test_what_was_missed_is_made_while_it_is_sent(face: EventFormat) -> None:
    room = Room()
    room.listen()
    start = room.all.epoch
    room.all.tell_changes([change(str(n)) for n in range(2500)])
    one = room.all.listen(EventFilter(), face, KEY, "127.0.0.1", start)
    parts = list(one.opening)
    assert len(parts) == 4, "a greeting, and so many frames of a thousand"
    assert not list(one.opening)

"""The items of one admitted order, and what others may ask of them meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from corral.wire.orders import AttemptOutcome, Item
from corral.worker.pool.code_bundle import Bundle
from corral.worker.pool.runner_process import Lane
from corral.worker.protocol import ChunksFrame, Frame

Key = tuple[str, int]
SAID_BYTES = 4 << 20


class OrderBatch:
    """Shared between the thread that executes it and those that drop from it."""

    def __init__(self, items: Sequence[Item], unload: Sequence[str] = ()) -> None:
        self.items = list(items)
        self.unload = list(unload)
        """Models to drop before the first of them."""
        self.later: list[Item] = []
        """Items that need other code than `items`: their turn comes after these."""
        self.dropped: set[Key] = set()
        self.is_recalled = False
        self.printed: dict[Key, int] = {}
        """How many lines an attempt has printed, on whichever runners it was."""
        self._said: dict[Key, ChunksFrame] = {}
        self._lane: Lane | None = None

    def keep(self, chunks: ChunksFrame) -> None:
        """Remember what an attempt has emitted, for when it is run once more."""
        said = self._said.get(chunks.key)
        if said is None or said.first + len(said.values) != chunks.first:
            said = ChunksFrame(*chunks.key, chunks.first, [])
        if said.size + chunks.size <= SAID_BYTES:
            said.values += chunks.values
            self._said[chunks.key] = said

    def again(self, item: Item) -> Item:
        """The same attempt, which can go on from what it has emitted."""
        said = self._said.get(item.key)
        if said is None:
            return item
        before: list[Raw] = []
        if isinstance(item.emitted, Raw):
            before = msgspec.json.decode(item.emitted, type=list[Raw])
        if len(before) < said.first - 1:
            return item
        whole = before[: said.first - 1] + said.values
        return msgspec.structs.replace(item, emitted=Raw(msgspec.json.encode(whole)))

    def attach(self, lane: Lane | None) -> None:
        self._lane = lane

    def drop(self, key: Key) -> None:
        """This attempt is no longer wanted: stop it, or never start it."""
        self.dropped.add(key)
        self._poke()

    def take_dropped(self) -> list[Item]:
        """Take out what was dropped before it was sent to a runner."""
        if not self.dropped:
            return []
        gone = set(self.dropped)
        taken = [item for item in self.items if item.key in gone]
        self.items = [item for item in self.items if item.key not in gone]
        return taken

    def set_apart(self, bundle_of: Callable[[Item], Bundle | None]) -> Bundle | None:
        """Keep the items with the code of the first one; which that is."""
        found = [(bundle_of(item), item) for item in self.items]
        first = found[0][0]
        self.items = [item for bundle, item in found if bundle == first]
        self.later += [item for bundle, item in found if bundle != first]
        return first

    def take_unload(self) -> list[str]:
        unload, self.unload = self.unload, []
        return unload

    def take_later(self) -> list[Item]:
        later, self.later = self.later, []
        return later

    def give_back(self, item: Item) -> AttemptOutcome:
        """How an item ends that does not start."""
        return cancelled(item) if item.key in self.dropped else returned(item)

    def recall(self) -> None:
        """Start no more of it; what runs may finish."""
        self.is_recalled = True
        self._poke()

    def send(self, frame: Frame) -> None:
        """Pass a frame on to whoever runs it, if somebody does."""
        lane = self._lane
        if lane is not None:
            lane.send(frame)

    def _poke(self) -> None:
        lane = self._lane
        if lane is not None:
            lane.poke()


def returned(item: Item) -> AttemptOutcome:
    """The item goes back, uncharged."""
    return AttemptOutcome(item.task_id, item.attempt, "returned")


def cancelled(item: Item) -> AttemptOutcome:
    return AttemptOutcome(item.task_id, item.attempt, "cancelled")

"""The models one worker has in memory, by its own word, and its room for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from corral.core.models.model import HeldModel, MemoryLeak, ModelLoad
from corral.core.nodes.gpu import Gpu
from corral.errors import InvalidField
from corral.wire.orders import ModelInMemory, ModelsReport

log = logging.getLogger(__name__)

STEP_MB = 64.0
"""Workers whose rooms differ by less are alike to the scheduler."""


@dataclass(frozen=True, slots=True)
class ReportedModels:
    """What a worker says it holds; a higher `number` is said later.

    `copies` has those that more than one of its runners hold; `sizes` are MB of models
    it can name before it has loaded them. `restarts` counts runners that were started
    anew because memory did not come back, `worn` is what the last of them had lost.
    """

    number: int
    held: Sequence[HeldModel] = ()
    copies: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    restarts: int = 0
    worn: MemoryLeak | None = None

    @classmethod
    def of(cls, said: ModelsReport, lead_s: float) -> ReportedModels:
        """From a worker whose clock is `lead_s` ahead of ours.

        Raises:
            InvalidField: what it calls a time is none.
        """
        return cls(
            said.number,
            [_held(model, lead_s) for model in said.held],
            {model.name: model.copies for model in said.held if model.copies > 1},
            said.sizes,
            said.restarts,
            said.worn,
        )

    @classmethod
    def among(cls, facts: Mapping[str, Any], lead_s: float) -> ReportedModels | None:
        """The same word in a beat, which repeats it.

        One that cannot be read is none: a node must not be lost for what a worker says.
        """
        told = facts.get("models")
        if told is None:
            return None
        try:
            return cls.of(msgspec.convert(told, ModelsReport, str_keys=True), lead_s)
        except (msgspec.ValidationError, InvalidField) as e:
            log.warning("a worker's word on its models cannot be read: %s", e)
            return None


def _held(model: ModelInMemory, lead_s: float) -> HeldModel:
    try:
        at = datetime.fromtimestamp(model.loaded_at - lead_s, UTC)
    except (ValueError, OverflowError, OSError) as e:
        raise InvalidField(f"{model.loaded_at} is no time", field="models") from e
    load = {each.name: getattr(model, each.name) for each in fields(ModelLoad)}
    return HeldModel(**load, loaded_at=at)


@dataclass(slots=True)
class HeldModels:
    """Empty again with every start of the worker."""

    number: int = 0
    held: dict[str, HeldModel] = field(default_factory=dict)
    copies: Mapping[str, int] = field(default_factory=dict)
    offered: frozenset[str] = frozenset()
    """Models it can name before it has loaded them; a restart changes nothing."""
    room_mb: float | None = None
    """What its models may take; None where it has no card, or nobody knows yet."""
    limit_mb: float | None = None
    """What they could take if nobody else used its cards."""
    others_mb: float = 0.0
    """What others use of its cards."""
    dropping: dict[str, str] = field(default_factory=dict)
    """Models it was asked to drop, and the task that asks."""
    uses: dict[str, int] = field(default_factory=dict)
    """Tasks that used a model since somebody counted."""
    restarts: int = 0
    """Runners that lost memory and were started anew."""
    _peak_mb: float = 0.0

    def clear(self) -> None:
        self.number, self.room_mb, self.limit_mb = 0, None, None
        self.others_mb = self._peak_mb = 0.0
        self.restarts = 0
        self.held, self.copies, self.dropping = {}, {}, {}

    def take(self, word: ReportedModels, now: datetime) -> list[HeldModel]:
        """Follow a word; the models that were loaded since the last one."""
        before, self.held = self.held, {}
        self.number, self.copies = word.number, word.copies
        self.offered = frozenset(word.sizes)
        loaded = []
        for model in word.held:
            known = before.get(model.name)
            if known is None or known.loaded_at != model.loaded_at:
                loaded.append(model)
            used = known.last_used if known else now
            self.held[model.name] = replace(model, last_used=used)
        self.dropping = {m: t for m, t in self.dropping.items() if m in self.held}
        self._peak_mb = max(self._peak_mb, self.own_mb)
        return loaded

    def use(self, model: str, at: datetime) -> None:
        self.uses[model] = self.uses.get(model, 0) + 1
        known = self.held.get(model)
        if known is not None:
            self.held[model] = replace(known, last_used=at)

    def takes_mb(self, model: HeldModel) -> float | None:
        """All that a model takes, with its copies."""
        if model.size_mb is None:
            return None
        return model.size_mb * self.copies.get(model.name, 1)

    @property
    def own_mb(self) -> float:
        return sum(self.takes_mb(model) or 0.0 for model in self.held.values())

    @property
    def _spare_copies_mb(self) -> float:
        """What copies beyond the first take; the scheduler counts each model once."""
        once = sum(model.size_mb or 0.0 for model in self.held.values())
        return self.own_mb - once

    def fit(self, cards: Sequence[Gpu], share: float, *, wants_cards: bool) -> None:
        """Take note of a reading of its cards, of which models may take `share`.

        A reading is a little older than what the worker says: what it held at any
        time since the reading before is not taken for somebody else's.
        """
        self.others_mb, self.limit_mb = 0.0, None
        if not wants_cards:
            self.room_mb = None
        elif not cards:
            # Nobody knows how large they are: no more than it has already.
            self.room_mb = self.own_mb
        else:
            self.room_mb = self._room_mb(cards, share)
        self._peak_mb = self.own_mb

    def _room_mb(self, cards: Sequence[Gpu], share: float) -> float | None:
        total = _sum(card.memory_total_mb for card in cards)
        if total is None:
            return None
        limit = total * share
        used = _sum(card.memory_used_mb for card in cards)
        offered = _sum(card.memory_offered_mb for card in cards)
        if used is not None and offered is not None:
            limit = min(limit, offered + used)
            self.others_mb = max(0.0, used - self._peak_mb)
        self.limit_mb = limit
        room = max(0.0, limit - self.others_mb - self._spare_copies_mb)
        return room - room % STEP_MB


def _sum(figures: Iterable[float | None]) -> float | None:
    """None as soon as one is unknown."""
    known = list(figures)
    return None if None in known else float(sum(figure or 0.0 for figure in known))

"""Which models should be elsewhere: moved, or copied to who has nothing to do.

Tasks wait with the manager, so only models are worth moving. A move is made when the
seconds that it is expected to spare tasks are more than it costs; see `what_if.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from corral.scheduler.models.what_if import WhatIf, WhatIfWorker
from corral.scheduler.world.picture import Picture

MOST_MOVES = 32
_EFFORT = 0.03
"""What a second of loading costs on a worker that has nothing else to do."""
_SOURCES, _TARGETS = 16, 2


class Strategy(StrEnum):
    MEMORY = "memory_optimized"
    LOAD = "load_balanced"


@dataclass(frozen=True, slots=True)
class Move:
    """A model goes to another worker; a copy also stays where it is.

    Seconds: what that spares tasks and what it costs, and how long the load takes.
    """

    model: str
    from_worker: str
    to_worker: str
    is_copy: bool
    saves_s: float
    costs_s: float
    load_s: float


class RebalancePlanner:
    """For one answer; `moves` may be called once."""

    def __init__(self, picture: Picture, most_models: int, now: float) -> None:
        self._picture = picture
        self._most_models = most_models
        self._now = now
        self._moves: list[Move] = []
        self._moved: set[tuple[str, str]] = set()
        """Models that came to a worker: they stay there."""
        self._givers: set[str] = set()
        """Those that give some away get none: no move waits for another."""

    def moves(self, strategy: Strategy, *, force: bool = False) -> tuple[Move, ...]:
        """What to do, in any order."""
        what_if = WhatIf(self._picture, self._most_models, self._now, force=force)
        if strategy is Strategy.MEMORY:
            self._make_room(what_if)
        while self._spread(what_if, strategy):
            pass
        return tuple(self._moves)

    def _spread(self, what_if: WhatIf, strategy: Strategy) -> bool:
        """The best moves that there are now, one of each worker; were there any?"""
        choices = [m for m in self._choices(what_if, strategy) if m.saves_s > m.costs_s]
        done: set[str] = set()
        for move in sorted(choices, key=_rank):
            if len(self._moves) >= MOST_MOVES:
                return False
            if move.from_worker not in done and self._is_still_good(
                what_if, strategy, move
            ):
                self._carry_out(what_if, move)
                done.add(move.from_worker)
        return bool(done)

    def _is_still_good(self, what_if: WhatIf, strategy: Strategy, move: Move) -> bool:
        """After those of the same round that went before it."""
        source, target = (
            what_if.workers[move.from_worker],
            what_if.workers[move.to_worker],
        )
        if target.id in self._givers or not what_if.has_room(target, move.model):
            return False
        again = self._try(
            what_if, strategy, move.model, source, target, is_copy=move.is_copy
        )
        return again.saves_s > again.costs_s

    def _carry_out(self, what_if: WhatIf, move: Move) -> None:
        what_if.put(what_if.workers[move.to_worker], move.model)
        if not move.is_copy:
            what_if.take(what_if.workers[move.from_worker], move.model)
            self._givers.add(move.from_worker)
        self._moves.append(move)
        self._moved.add((move.model, move.to_worker))

    # one at a time -----------------------------------------------------------
    def _choices(self, what_if: WhatIf, strategy: Strategy) -> Iterator[Move]:
        """What could be done next, from those that have most to those with least."""
        rank = what_if.busy if strategy is Strategy.LOAD else what_if.fill
        by_rank = sorted(what_if.workers.values(), key=lambda s: (rank(s), s.id))
        takers = [s for s in by_rank if s.is_free and s.id not in self._givers]
        givers = [s for s in reversed(by_rank) if s.models][:_SOURCES]
        for source in givers:
            for model in sorted(source.models):
                if (model, source.id) in self._moved:
                    continue
                can_move = what_if.can_move(source, model)
                for target in _targets(what_if, model, takers):
                    if can_move:
                        yield self._try(what_if, strategy, model, source, target)
                    if strategy is Strategy.LOAD:
                        yield self._try(
                            what_if, strategy, model, source, target, is_copy=True
                        )

    def _try(
        self,
        what_if: WhatIf,
        strategy: Strategy,
        model: str,
        source: WhatIfWorker,
        target: WhatIfWorker,
        *,
        is_copy: bool = False,
    ) -> Move:
        """What it would bring: done, looked at, and taken back."""
        affected = {*source.models, *target.models, model}
        crowding_s, waiting_s = _state(what_if, source, target, affected)
        what_if.put(target, model)
        if not is_copy:
            what_if.take(source, model)
        crowded_s, waits_s = _state(what_if, source, target, affected)
        if not is_copy:
            what_if.put(source, model)
        what_if.take(target, model)
        costs_s = _EFFORT * what_if.load_s(model)
        if strategy is Strategy.MEMORY:
            saves_s = crowding_s - crowded_s
            costs_s += max(0.0, waits_s - waiting_s)
        else:
            saves_s = waiting_s - waits_s
            costs_s += max(0.0, crowded_s - crowding_s)
        return _move(what_if, model, source, target, saves_s, costs_s, is_copy)

    # room in one piece -------------------------------------------------------
    def _make_room(self, what_if: WhatIf) -> None:
        """Free one card for the largest model that nobody has room for.

        Otherwise its load would drop models that would fit elsewhere.
        """
        short = [
            model
            for model in what_if.wanted()
            if what_if.size_mb(model)
            and not what_if.copies(model)
            and not any(
                what_if.has_room(worker, model) for worker in what_if.serving(model)
            )
        ]
        for model in sorted(short, key=lambda m: (-what_if.size_mb(m), m)):
            found = [
                moves
                for worker in what_if.serving(model)
                if (moves := _emptied(what_if, worker, model)) and _is_worth_it(moves)
            ]
            if found:
                best = min(found, key=_cost)
                for move in best[:MOST_MOVES]:
                    self._carry_out(what_if, move)
                return


def _targets(
    what_if: WhatIf, model: str, takers: Iterable[WhatIfWorker]
) -> list[WhatIfWorker]:
    serving = what_if.groups(model)
    fit = (
        worker
        for worker in takers
        if worker.real.group in serving and what_if.has_room(worker, model)
    )
    return list(islice(fit, _TARGETS))


def _state(
    what_if: WhatIf, source: WhatIfWorker, target: WhatIfWorker, models: Iterable[str]
) -> tuple[float, float]:
    crowding_s = what_if.crowding_s(source) + what_if.crowding_s(target)
    return crowding_s, what_if.waiting_s(models)


def _emptied(what_if: WhatIf, worker: WhatIfWorker, wanted: str) -> list[Move]:
    """Moves that make room on a worker for a model; none if it cannot be made."""
    memory_mb, left_mb = worker.real.memory_mb, what_if.room_mb(worker)
    size_mb = what_if.size_mb(wanted)
    if (
        not worker.is_free
        or memory_mb is None
        or left_mb is None
        or size_mb > memory_mb
    ):
        return []
    out = [m for m in worker.models if what_if.can_move(worker, m)]
    moves: list[Move] = []
    for model in sorted(out, key=lambda m: (-what_if.size_mb(m), m)):
        if left_mb >= size_mb:
            break
        target = _tightest(what_if, worker, model)
        if target is None:
            continue
        what_if.put(target, model)
        saves_s = what_if.load_s(model) * what_if.again(model) * what_if.again(wanted)
        costs_s = _EFFORT * what_if.load_s(model)
        moves.append(_move(what_if, model, worker, target, saves_s, costs_s))
        left_mb += what_if.size_mb(model)
    for move in moves:
        what_if.take(what_if.workers[move.to_worker], move.model)
    return moves if left_mb >= size_mb else []


def _tightest(what_if: WhatIf, source: WhatIfWorker, model: str) -> WhatIfWorker | None:
    """Where it fits and least is left: large rooms stay large."""
    fit = [
        (what_if.room_mb(worker) or 0.0, worker.id, worker)
        for worker in what_if.serving(model)
        if worker is not source and worker.is_free and what_if.has_room(worker, model)
    ]
    return min(fit, key=lambda row: row[:2])[2] if fit else None


def _is_worth_it(moves: list[Move]) -> bool:
    return sum(m.saves_s for m in moves) > sum(m.costs_s for m in moves)


def _cost(moves: list[Move]) -> tuple[float, str]:
    return sum(move.costs_s for move in moves), moves[0].from_worker


def _move(
    what_if: WhatIf,
    model: str,
    source: WhatIfWorker,
    target: WhatIfWorker,
    saves_s: float,
    costs_s: float,
    is_copy: bool = False,
) -> Move:
    load_s = what_if.load_s(model)
    return Move(model, source.id, target.id, is_copy, saves_s, costs_s, load_s)


def _rank(move: Move) -> tuple[float, bool, str, str, str]:
    """The best first: what is gained, then a move before a copy, then by name."""
    gain_s = round(move.saves_s - move.costs_s, 9)
    return -gain_s, move.is_copy, move.model, move.from_worker, move.to_worker


def duration_s(moves: Iterable[Move]) -> float:
    """Until all are done: workers load side by side, each one model at a time."""
    total: dict[str, float] = {}
    for move in moves:
        total[move.to_worker] = total.get(move.to_worker, 0.0) + move.load_s
    return max(total.values(), default=0.0)

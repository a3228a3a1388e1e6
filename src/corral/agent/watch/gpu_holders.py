"""Gives the cards of this node to its workers, and takes them back.

Which worker gets which is `core/nodes/gpu_choice.py`; this keeps what was given to
whom. It is used under the lock of `NodeWorkers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from corral.agent.link.status_line import ObservedWorker
from corral.agent.watch.gpu_health import blames_card
from corral.agent.watch.gpus import GpuWatch
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.gpu_choice import (
    BoundGpus,
    GpuClaim,
    GpuRequest,
    bind,
    read_wish,
    visible,
)
from corral.core.nodes.worker import WorkerState
from corral.errors import InvalidField
from corral.wire.agent import DesiredWorker, WorkerBeat

LEDGER = "CORRAL_GPU_LEDGER"
_UNKNOWN = "the GPUs of this node are not known yet"
Workers = Mapping[str, DesiredWorker]


class GpuBinder:
    def __init__(self, watch: GpuWatch | None) -> None:
        self._watch = watch
        self._held: dict[str, tuple[Gpu, ...]] = {}
        self._waiting: dict[str, ObservedWorker] = {}

    def settle(
        self, desired: Workers, living: Workers, taken: Set[str] = frozenset()
    ) -> list[str]:
        """Decide anew who has which cards; the living workers that must leave theirs.

        Those keep their cards until they are gone, which asks for another settling.
        Cards that are `taken` are with tasks.
        """
        workers = {**desired, **living}
        self._held = {i: held for i, held in self._held.items() if i in workers}
        latest = self._watch.latest() if self._watch else (0, [])
        waiting: dict[str, ObservedWorker] = {}
        lost: list[str] = []
        for worker_id, binding in _decide(workers, self._held, latest, taken).items():
            held = self._held.get(worker_id, ())
            if worker_id in living:
                if _ids(binding.cards) != _ids(held):
                    lost.append(worker_id)
            elif binding.cards:
                self._held[worker_id] = binding.cards
            else:
                self._held.pop(worker_id, None)
                waiting[worker_id] = _waits(binding.refusal, known=latest is not None)
        self._waiting = waiting
        return lost

    @property
    def waiting(self) -> Mapping[str, ObservedWorker]:
        """What is said of workers that have no cards and therefore do not run."""
        return self._waiting

    def variables(self, worker_id: str) -> dict[str, str]:
        """What shows a worker its cards; nothing for one that has none of its own."""
        cards = self._held.get(worker_id)
        if not cards:
            return {}
        shown = visible(cards)
        if self._watch and any(card.is_simulated for card in cards):
            shown[LEDGER] = str(self._watch.ledger)
        return shown

    def facts(self, worker_id: str) -> dict[str, Any]:
        """The part of a worker's beat that tells its cards."""
        cards = self._held.get(worker_id)
        if cards is None and worker_id not in self._waiting:
            return {}
        return {"gpus": list(_ids(cards or ()))}

    def blame(self, worker_id: str, error: str) -> None:
        """A worker has failed; when its word blames its card, that counts.

        Of several cards nobody knows which it was.
        """
        cards = self._held.get(worker_id, ())
        if self._watch and len(cards) == 1 and blames_card(error):
            self._watch.blame(cards[0].id, error)


def _decide(
    workers: Workers,
    held: Mapping[str, tuple[Gpu, ...]],
    latest: tuple[int, list[Gpu]] | None,
    taken: Set[str],
) -> dict[str, BoundGpus]:
    wants: list[GpuClaim] = []
    decided: dict[str, BoundGpus] = {}
    for worker_id, worker in workers.items():
        try:
            wish = read_wish(worker.gpus)
        except InvalidField as error:
            decided[worker_id] = BoundGpus(refusal=error.message)
            continue
        if wish:
            wants.append(_want(worker_id, worker, wish, held))
    if latest is None:
        return decided | {w.worker_id: BoundGpus(refusal=_UNKNOWN) for w in wants}
    return decided | bind(wants, latest[1], taken)


def _want(
    worker_id: str,
    worker: DesiredWorker,
    wish: GpuRequest,
    held: Mapping[str, tuple[Gpu, ...]],
) -> GpuClaim:
    name = worker.name or worker_id
    return GpuClaim(worker_id, name, wish, _ids(held.get(worker_id, ())))


def _ids(cards: tuple[Gpu, ...]) -> tuple[str, ...]:
    return tuple(card.id for card in cards)


def _waits(refusal: str, *, known: bool) -> ObservedWorker:
    state = WorkerState.ERROR if known else WorkerState.STARTING
    return ObservedWorker(state=state, error=refusal)


def unstarted(binder: GpuBinder) -> Iterator[WorkerBeat]:
    """The beats' entries of workers that wait for cards."""
    for worker_id, word in binder.waiting.items():
        yield word.entry(worker_id, 0.0, binder.facts(worker_id))

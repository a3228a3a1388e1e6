"""Runners for tasks that bring their code along: a process never sees two bundles.

Modules of two versions of one project have the same names, so what one task imported
must not be there for another. Fetches nothing itself and never imports user code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from corral.errors import CorralError, WorkerError
from corral.wire.orders import Item
from corral.worker.manager_link import Away
from corral.worker.pool.code_bundle import Bundle, bundle_of
from corral.worker.pool.runner_pool import BUSY, RunnerPool, Unrunnable
from corral.worker.pool.runner_process import Lane, RunnerProcess
from corral.worker.pool.transport import RunnerSpec

SPARE = 3
"""Runners kept beyond those that may be busy: the next task of their bundle need not
import everything again."""
IDLE_S = 600.0
SWEEP_S = 30.0
FETCH_S = 30.0
AGAIN_S = 1.0
GRUDGE_S = 5.0
_now = time.monotonic


class BundleRecipe(Protocol):
    """How to come by a bundle; what it took is held until `close`."""

    def make(self) -> RunnerSpec: ...

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _BundleRunner:
    """One runner of a bundle, kept alive by a pool of its own."""

    pool: RunnerPool
    used_at: float = field(default_factory=_now)


@dataclass(slots=True, eq=False)
class _BundleRunners:
    """What this worker has of one bundle."""

    recipe: BundleRecipe
    lock: threading.Lock = field(default_factory=threading.Lock)
    spec: RunnerSpec | None = None
    fault: str = ""
    faulty_until: float = 0.0
    free: list[_BundleRunner] = field(default_factory=list)
    users: int = 0
    used_at: float = 0.0


class BundlePool(RunnerPool):
    """Its own runners do tasks without a bundle; at most `size` are busy in all."""

    takes_bundles = True

    def __init__(
        self,
        spec: RunnerSpec,
        size: int,
        on_change: Callable[[], None],
        recipe_of: Callable[[Bundle], BundleRecipe],
        plain_types: Collection[str] = (),
    ) -> None:
        super().__init__(spec, size, on_change)
        self._recipe_of = recipe_of
        self._plain_types = frozenset(plain_types)
        self._limit = size + SPARE
        self._slots = threading.Semaphore(size)
        self._guard = threading.Lock()
        self._shops: dict[Bundle, _BundleRunners] = {}
        self._seats: set[_BundleRunner] = set()
        self._busy: dict[Lane, tuple[_BundleRunners, _BundleRunner]] = {}

    def start(self, spec: RunnerSpec | None = None) -> None:
        super().start(spec)
        threading.Thread(target=self._keep_tidy, name="tidy", daemon=True).start()

    def bundle_of(self, item: Item) -> Bundle | None:
        return None if item.job_type in self._plain_types else bundle_of(item)

    @property
    def runners(self) -> list[RunnerProcess]:
        seats = self._all_seats()
        return [*super().runners, *(r for seat in seats for r in seat.pool.runners)]

    def acquire(
        self,
        bundle: Bundle | None = None,
        model: str | None = None,
        patience_s: float | None = None,
    ) -> Lane:
        """A ready runner that has seen this bundle only, or none.

        Raises:
            Unrunnable: the bundle cannot be fetched, built or started.
            WorkerError: there is no runner now, but perhaps later or elsewhere.
        """
        with ExitStack() as undo:
            shop = self._enter(bundle, undo) if bundle else None
            if not self._slots.acquire(timeout=patience_s):
                raise WorkerError(BUSY)
            undo.callback(self._slots.release)
            runner = self._sit(shop, undo) if shop else super().acquire(model=model)
            undo.pop_all()
        return runner

    def release(self, lane: Lane) -> None:
        with self._guard:
            found = self._busy.pop(lane, None)
        if found is None:
            super().release(lane)
        else:
            shop, seat = found
            seat.pool.release(lane)
            with self._guard:
                seat.used_at = _now()
                shop.free.append(seat)
                if not lane.runner.is_dead:
                    self._note_finished()
            self._leave(shop)
        self._slots.release()

    def close(self) -> None:
        super().close()
        for seat in self._all_seats():
            seat.pool.close()

    def kill(self) -> None:
        super().kill()
        for seat in self._all_seats():
            seat.pool.kill()
        with self._guard:
            shops = list(self._shops.values())
            self._shops.clear()
        for shop in shops:
            shop.recipe.close()

    def join(self) -> None:
        super().join()
        for seat in self._all_seats():
            seat.pool.join()

    def _all_seats(self) -> list[_BundleRunner]:
        with self._guard:
            return list(self._seats)

    def _enter(self, bundle: Bundle, undo: ExitStack) -> _BundleRunners:
        """The shop of a bundle, with its code in place; may take minutes.

        No slot is held meanwhile: tasks whose code is there go on.
        """
        with self._guard:
            if bundle not in self._shops:
                self._shops[bundle] = _BundleRunners(self._recipe_of(bundle))
            shop = self._shops[bundle]
            shop.users += 1
        undo.callback(self._leave, shop)
        with shop.lock:
            if shop.spec is None:
                shop.spec = self._make(shop)
        return shop

    def _leave(self, shop: _BundleRunners) -> None:
        with self._guard:
            shop.users -= 1
            shop.used_at = _now()

    def _make(self, shop: _BundleRunners) -> RunnerSpec:
        if _now() < shop.faulty_until:  # a thousand tasks need not find out each
            raise Unrunnable(shop.fault)
        ends = _now() + FETCH_S
        while True:
            try:
                return shop.recipe.make()
            except Away as away:
                if _now() >= ends or self._closing.wait(AGAIN_S):
                    raise WorkerError(away.message) from away
            except CorralError as error:
                shop.fault = f"the task's code cannot be used: {error.message}"
                shop.faulty_until = _now() + GRUDGE_S
                raise Unrunnable(shop.fault) from error

    def _sit(self, shop: _BundleRunners, undo: ExitStack) -> Lane:
        if self._closing.is_set():
            raise WorkerError("the worker is closing")
        seat = self._take_seat(shop)
        undo.callback(self._remove, [seat])
        try:
            runner = seat.pool.acquire()
        except WorkerError as error:
            if self._closing.is_set():
                raise
            fault = f"no process for the task's code starts: {error.message}"
            raise Unrunnable(fault) from error
        with self._guard:
            self._busy[runner] = (shop, seat)
        return runner

    def _take_seat(self, shop: _BundleRunners) -> _BundleRunner:
        assert shop.spec is not None
        with self._guard:
            if shop.free:
                return shop.free.pop()
            gone = self._pick_oldest(len(self._seats) + 1 - self._limit)
            seat = _BundleRunner(RunnerPool(shop.spec, 1, self._on_change))
            self._seats.add(seat)
        self._remove(gone)
        seat.pool.start()
        return seat

    def _pick_oldest(self, count: int) -> list[_BundleRunner]:
        """Take out of the shops what has been free the longest."""
        free = [(seat, shop) for shop in self._shops.values() for seat in shop.free]
        free.sort(key=lambda found: found[0].used_at)
        picked = free[: max(count, 0)]
        for seat, shop in picked:
            shop.free.remove(seat)
        return [seat for seat, _ in picked]

    def _remove(self, seats: list[_BundleRunner]) -> None:
        for seat in seats:
            seat.pool.kill()
        with self._guard:
            self._seats.difference_update(seats)

    def _keep_tidy(self) -> None:
        while not self._closing.wait(SWEEP_S):
            self.sweep(_now() - IDLE_S)

    def sweep(self, before: float) -> None:
        """End runners that nobody has used since, and let go of their code."""
        with self._guard:
            gone = [
                seat
                for shop in self._shops.values()
                for seat in shop.free
                if seat.used_at < before
            ]
            for shop in self._shops.values():
                shop.free = [seat for seat in shop.free if seat not in gone]
            left = [
                bundle
                for bundle, shop in self._shops.items()
                if not shop.users and not shop.free and shop.used_at < before
            ]
            closed = [self._shops.pop(bundle) for bundle in left]
        self._remove(gone)
        for shop in closed:
            shop.recipe.close()

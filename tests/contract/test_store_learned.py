"""What was learned, and when keys were used: saved, replaced, forgotten."""

from __future__ import annotations

from dataclasses import replace

from corral.core.access.key import Key, Scope
from corral.core.insight.learned import LOAD, RUN, SPEED, Learned
from corral.store.base import Store
from tests.contract.conftest import NOW, later

RUNS = Learned(RUN, "resize", "sdxl", 12, "", 40.0, 1.5, 0.25, 0.3, "w1")
PACE = Learned(SPEED, worker_id="w1", count=9.0, value=-0.5, middle=-0.52)
LOADS = Learned(LOAD, model="sdxl", worker_id="w1", count=2.0, value=7.0)


async def test_a_figure_replaces_the_former_of_its_subject(store: Store) -> None:
    await store.metrics.save_learned([RUNS, PACE, LOADS], NOW)
    changed = replace(RUNS, count=41.0, value=1.75, sole="")
    await store.metrics.save_learned([changed], later(1))
    await store.metrics.save_learned([], later(2))
    assert await store.metrics.learned(10) == [LOADS, changed, PACE]


async def test_only_the_latest_figures_are_given(store: Store) -> None:
    await store.metrics.save_learned([RUNS], NOW)
    await store.metrics.save_learned([PACE, LOADS], later(1))
    assert await store.metrics.learned(2) == [LOADS, PACE]


async def test_figures_nothing_was_added_to_are_forgotten(store: Store) -> None:
    await store.metrics.save_learned([RUNS], NOW)
    await store.metrics.save_learned([PACE], later(10))
    await store.metrics.forget_learned(later(5))
    assert await store.metrics.learned(10) == [PACE]


async def test_a_key_remembers_when_it_was_used_last(store: Store) -> None:
    key = Key("k1", "digest", Scope.SUBMIT, "ann", created_at=NOW)
    await store.access.save_key(key)
    await store.access.save_key(replace(key, id="k2", name="bob"))
    await store.access.stamp_keys({"k1": later(5), "gone": later(5)})
    await store.access.stamp_keys({})
    first, second = await store.access.keys()
    assert first == replace(key, last_used_at=later(5))
    assert second.last_used_at is None

"""What was learned of models, and pins: saved, replaced, deleted."""

from __future__ import annotations

from dataclasses import replace

from corral.core.models.model import KnownModel, Pin
from corral.store.base import Store
from tests.contract.conftest import NOW

PIN = Pin("w1", "llama", preload=True, priority=10, created_at=NOW)


async def test_what_is_learned_of_a_model_replaces_what_was(store: Store) -> None:
    await store.models.save_models([KnownModel("b", 500.0, 2.0), KnownModel("a")])
    await store.models.save_models([KnownModel("b", 600.0, 1.5)])
    await store.models.save_models([])
    assert await store.models.models() == [KnownModel("a"), KnownModel("b", 600.0, 1.5)]


async def test_a_pin_is_of_one_worker_and_one_model(store: Store) -> None:
    await store.models.save_pin(PIN)
    await store.models.save_pin(replace(PIN, worker_id="w0"))
    await store.models.save_pin(replace(PIN, preload=False))
    assert await store.models.pins() == [
        replace(PIN, worker_id="w0"),
        replace(PIN, preload=False),
    ]


async def test_a_deleted_pin_is_gone_and_the_others_stay(store: Store) -> None:
    await store.models.save_pin(PIN)
    await store.models.save_pin(replace(PIN, model="phi"))
    for _ in range(2):
        await store.models.delete_pin("w1", "llama")
    assert await store.models.pins() == [replace(PIN, model="phi")]

"""The catalogue of models: saved, counted, deleted, the same in both stores."""

from __future__ import annotations

from dataclasses import replace

from corral.core.models.catalogue import READY, CatalogueModel, Measure, ModelFile
from corral.store.base import Store
from tests.contract.conftest import NOW, later

FILES = (
    ModelFile("config.json", 12, "a" * 64),
    ModelFile("model.safetensors", 1 << 40, "b" * 64, ("c" * 64, "d" * 64)),
)
LLAMA = CatalogueModel(
    "llama",
    "llm",
    "hf:owner/llama",
    "main",
    "0f1e2d",
    FILES,
    READY,
    trust_remote_code=True,
    dtype="float16",
    memory_mb=123.5,
    tags=("chat", "small"),
    created_at=NOW,
)
PEAKS = ((1, 4.5), (8, 30.0))
SEEN = (Measure("H200", "float16", 120.5, 1.5, 3, PEAKS), Measure("cpu", "auto"))


async def test_a_model_of_the_catalogue_is_read_as_it_was_saved(store: Store) -> None:
    other = CatalogueModel("bert", error="no\x00 folder", source="bert")
    await store.models.save_catalogue_model(LLAMA)
    await store.models.save_catalogue_model(other)
    bert, llama = await store.models.catalogue()
    assert llama == LLAMA
    assert (bert.name, bert.files, bert.status) == ("bert", (), "reading")


async def test_what_is_told_anew_leaves_what_was_counted(store: Store) -> None:
    await store.models.save_catalogue_model(LLAMA)
    seen = replace(LLAMA, uses=7, last_used_at=later(3), measures=SEEN)
    await store.models.save_catalogue_figures(
        [seen, replace(LLAMA, name="gone", uses=1)]
    )
    await store.models.save_catalogue_figures([])
    assert await store.models.catalogue() == [seen]
    await store.models.save_catalogue_model(
        replace(LLAMA, revision="4c5b", files=FILES[:1])
    )
    assert await store.models.catalogue() == [
        replace(seen, revision="4c5b", files=FILES[:1])
    ]


async def test_figures_change_nothing_else(store: Store) -> None:
    await store.models.save_catalogue_model(LLAMA)
    await store.models.save_catalogue_figures([replace(LLAMA, source="else", uses=2)])
    assert await store.models.catalogue() == [replace(LLAMA, uses=2)]


async def test_a_model_that_was_deleted_is_gone(store: Store) -> None:
    await store.models.save_catalogue_model(LLAMA)
    for _ in range(2):
        await store.models.delete_catalogue_model("llama")
    assert await store.models.catalogue() == []

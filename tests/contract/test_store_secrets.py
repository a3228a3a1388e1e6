"""Named secrets: saved whole, sealed, read whole, deleted by name."""

from __future__ import annotations

from dataclasses import replace

from corral.core.access.secret import Secret
from corral.store.base import Store
from tests.contract.conftest import NOW, later

SECRET = Secret(
    "HF_TOKEN",
    "1:c2VhbGVk",
    ("train", "run_script"),
    NOW,
    NOW,
    ("ann", "bob"),
    {"zone": "trusted"},
)


async def test_a_saved_secret_replaces_the_former(store: Store) -> None:
    await store.access.save_secret(SECRET)
    await store.access.save_secret(Secret("A", "1:YQ==", (), NOW, NOW))
    newer = replace(SECRET, sealed="1:b3RoZXI=", job_types=(), updated_at=later(5))
    await store.access.save_secret(newer)
    assert await store.access.secrets() == [Secret("A", "1:YQ==", (), NOW, NOW), newer]


async def test_a_secret_is_gone_once_it_is_deleted(store: Store) -> None:
    await store.access.save_secret(SECRET)
    await store.access.delete_secret("HF_TOKEN")
    await store.access.delete_secret("HF_TOKEN")
    assert await store.access.secrets() == []


async def test_clearing_the_cluster_of_work_keeps_secrets(
    store: Store, term: int
) -> None:
    await store.access.save_secret(SECRET)
    await store.clear(term, ())
    assert await store.access.secrets() == [SECRET]

"""Shares, their use, and paused job types: saved, replaced, deleted."""

from __future__ import annotations

from dataclasses import replace

from corral.core.access.share import Share, ShareUse
from corral.core.tasks.job_type import JobType
from corral.store.base import Store

SHARE = Share("team=vision", weight=2.5, max_running=10, gpu_seconds_per_day=3600.0)


async def test_a_saved_share_replaces_the_former(store: Store) -> None:
    await store.queues.save_share(SHARE)
    await store.queues.save_share(Share("owner=*", max_running=0))
    await store.queues.save_share(replace(SHARE, weight=None))
    assert await store.queues.shares() == [
        Share("owner=*", max_running=0),
        replace(SHARE, weight=None),
    ]


async def test_a_deleted_share_is_gone(store: Store) -> None:
    await store.queues.save_share(SHARE)
    for _ in range(2):
        await store.queues.delete_share(SHARE.name)
    assert await store.queues.shares() == []


async def test_what_was_used_is_what_was_told_last(store: Store) -> None:
    await store.queues.save_share_uses(
        [ShareUse("team=a", 7, 1.5), ShareUse("team=b", 7, 9)]
    )
    await store.queues.save_share_uses([ShareUse("team=b", 8, 0.5)])
    assert await store.queues.share_uses() == [ShareUse("team=b", 8, 0.5)]
    await store.queues.save_share_uses([])
    assert await store.queues.share_uses() == []


async def test_a_job_type_stays_paused_until_it_is_saved_otherwise(
    store: Store,
) -> None:
    await store.registry.save_job_type(JobType("resize", is_paused=True))
    assert [t.is_paused for t in await store.registry.job_types()] == [True]
    await store.registry.save_job_type(JobType("resize"))
    assert [t.is_paused for t in await store.registry.job_types()] == [False]

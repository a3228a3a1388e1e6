"""What a manager takes up from the store when it begins to lead."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from corral.manager.cluster.state import NodeLink

if TYPE_CHECKING:
    from corral.manager.app import Manager

log = logging.getLogger(__name__)


async def load(boss: Manager) -> None:
    """Let memory have the live part of the store."""
    cluster, store, now = boss.cluster, boss.store, boss.clock.monotonic()
    for job_type in await store.job_types():
        cluster.set_job_type(job_type)
    await boss.gateway.load()
    cluster.worker_types = {t.name: t for t in await store.worker_types()}
    for node in await store.nodes():
        # Every lease gets a fresh grace: silence was ours, not theirs.
        # The former self's versions must not come again for another wish.
        version = cluster.term << 20
        cluster.nodes[node.id] = NodeLink(node, now, desired_version=version)
    for worker in await store.workers():
        cluster.add_worker(worker)
    await boss.sharing.load()
    live = await store.live_tasks()
    cluster.tasks = {t.id: t for t in live}
    homeless = [task for task in live if not boss.rescue.take_over(task)]
    # Before anything is planned: what was held stays so.
    boss.holding.load()
    await boss.models.load()
    await boss.catalogue.load()
    await boss.caching.load()
    await boss.learning.load()
    await boss.dispatching.give_up(homeless)
    await boss.rescue.resolve()
    log.info("loaded %d live tasks, term %d", len(live), cluster.term)

"""Which revision of a model answers: the one that the catalogue has when it is sent."""

from __future__ import annotations

from pathlib import Path

from tests.unit.api.models.test_catalogue import added, sources, write
from tests.unit.api.world import World, quiet, running, said


async def test_a_worker_with_an_older_revision_in_memory_loads_the_new_and_drops_it(
    tmp_path: Path,
) -> None:
    async with running(sources(tmp_path)) as world:
        await follow_revisions(world, tmp_path)


async def follow_revisions(world: World, tmp_path: Path) -> None:
    folder = write(tmp_path / "models" / "tiny")
    await added(world, "tiny", "tiny")
    worker = await world.worker("echo")
    said(await worker.report(models={"number": 1, "held": [], "sizes": {}}))

    async def edition() -> str:
        await world.submit.submit(model_name="tiny")
        await quiet()
        item = worker.take_one()
        await worker.finish(item)
        told: str = item["edition"]
        return told

    old = await edition()
    assert await edition() == old
    has = {"name": "tiny", "loaded_at": 1.0, "edition": old}
    said(await worker.report(models={"number": 2, "held": [has], "sizes": {}}))
    write(folder, {"config.json": b"{}"})
    await added(world, "tiny", "tiny")
    new = await edition()
    assert new != old
    await world.manager.models.memory.step()
    item = worker.take_one()
    assert (item["job_type"], item["payload"]) == ("corral.model", {"unload": "tiny"})
    await worker.finish(item)
    has = {"name": "tiny", "loaded_at": 2.0, "edition": new}
    said(await worker.report(models={"number": 3, "held": [has], "sizes": {}}))
    await world.manager.models.memory.step()
    assert worker.take() == []
    await added(world, "tiny", "tiny", dtype="float32")
    assert await edition() not in (old, new), "the same files, read otherwise"

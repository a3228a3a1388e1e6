"""Kept results: found by key, replaced, counted, forgotten by age, type and size; and
tasks that are stored with their result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corral.core.tasks.job_type import JobType
from corral.core.tasks.options import SpecOptions
from corral.core.tasks.result_cache import (
    ROW_BYTES,
    KeptResult,
    KeptTotal,
    answered,
)
from corral.core.tasks.task import State
from corral.store.base import Store
from tests.contract.conftest import NOW, later, make_task

pytestmark = pytest.mark.spec("C56")
ONE = KeptResult("k1", "embed", "t1", '{"text": "\\u0000 ü"}', NOW, "models:Embed")
TWO = KeptResult("k2", "embed", "t2", "[1.5]", NOW)
OTHER = KeptResult("k3", "label", "t3", '"x"', NOW)


async def test_kept_results_are_found_by_key(store: Store) -> None:
    await store.results.save_results([OTHER, TWO, ONE], NOW)
    await store.results.save_results([], NOW)
    found = await store.results.find_results(["k3", "k1", "k1", "nobody's"])
    assert found == {"k1": ONE, "k3": OTHER}
    assert await store.results.find_results([]) == {}


async def test_a_newer_result_takes_the_place_of_the_one_before(store: Store) -> None:
    assert await store.results.save_results([ONE, TWO], NOW) == {}
    newer = replace(ONE, task_id="t9", result="[2, 3]", made_at=later(5), maker="")
    assert await store.results.save_results([newer, OTHER], later(5)) == {
        "k1": ONE.size
    }
    assert await store.results.find_results(["k1"]) == {"k1": newer}
    assert await store.results.kept_results() == {
        "embed": KeptTotal(2, newer.size + TWO.size),
        "label": KeptTotal(1, OTHER.size),
    }


async def test_the_size_of_a_result_is_that_of_its_bytes() -> None:
    assert replace(TWO, result='"ü"').size == 4 + ROW_BYTES


async def test_results_of_one_type_are_forgotten(store: Store) -> None:
    await store.results.save_results([ONE, TWO, OTHER], NOW)
    assert await store.results.clear_results("embed") == 2
    assert await store.results.clear_results("embed") == 0
    assert list(await store.results.kept_results()) == ["label"]


async def test_results_past_the_time_of_their_type_are_forgotten(store: Store) -> None:
    young = replace(TWO, made_at=later(10))
    await store.results.save_results([ONE, young, OTHER], NOW)
    assert await store.results.prune_results({"embed": later(10), "another": NOW}) == 2
    assert await store.results.find_results(["k1", "k2", "k3"]) == {"k2": young}
    assert await store.results.prune_results({}) == 1
    assert await store.results.kept_results() == {}


async def test_those_used_last_stay_when_there_is_too_much(store: Store) -> None:
    await store.results.save_results([ONE], NOW)
    await store.results.save_results([TWO], later(1))
    await store.results.save_results([OTHER], later(2))
    await store.results.use_results({"k1": later(3), "nobody's": later(4)})
    await store.results.use_results({})
    limit = ONE.size + OTHER.size
    assert await store.results.trim_results(limit + TWO.size) == 0
    assert await store.results.trim_results(limit) == 1
    assert (await store.results.find_results(["k1", "k2", "k3"])).keys() == {
        "k1",
        "k3",
    }
    assert await store.results.trim_results(0) == 2


async def test_a_task_is_stored_with_the_result_it_was_answered_with(
    store: Store,
) -> None:
    term = await store.take_lead("m", NOW)
    plain = make_task("plain")
    known = answered(make_task("known", labels={"a": "b"}), ONE, later(1))
    done = await store.tasks.insert_tasks(term, [plain, known])
    assert done.created.keys() == {"plain", "known"}
    task = await store.tasks.get_task("known")
    assert task is not None
    assert (task.state, task.result) == (State.COMPLETED, ONE.result)
    assert (task.finished_at, task.worker_id) == (later(1), None)
    assert task.spec.labels == {"a": "b"}
    assert task.spec.options.cached_from == "t1"
    assert [t.id for t in await store.tasks.live_tasks()] == ["plain"]
    again = await store.tasks.insert_tasks(term, [known])
    assert again.existing["known"].state is State.COMPLETED


async def test_its_end_is_told_after_its_beginning_and_counted(store: Store) -> None:
    term = await store.take_lead("m", NOW)
    told = SpecOptions(notify=("http://hook.example/x",))
    known = [
        answered(make_task(name, options=told), ONE, later(1)) for name in ("a", "b")
    ]
    await store.tasks.insert_tasks(term, [*known, make_task("c")])
    first, second = sorted(
        await store.events.events(limit=10), key=lambda e: e.seq or 0
    )
    assert (first.event_type, second.event_type) == ("tasks_submitted", "tasks_settled")
    assert sorted(second.task_ids) == ["a", "b"]
    assert second.data == {"attempts": [1, 1], "states": ["completed", "completed"]}
    assert [notice.task_id for notice in await store.queues.notices()] == ["a", "b"]
    await store.metrics.roll_up(later(3600))
    begin = int(NOW.timestamp()) - 3600
    totals = await store.metrics.task_totals(begin, begin + 7200)
    assert (totals.ended, totals.completed) == (2, 2)


async def test_an_answered_task_runs_when_it_is_requeued(store: Store) -> None:
    term = await store.take_lead("m", NOW)
    await store.tasks.insert_tasks(term, [answered(make_task("known"), ONE, later(1))])
    task = await store.tasks.requeue_task(term, "known", later(2))
    assert task is not None
    assert (task.state, task.run, task.result) == (State.QUEUED, 2, None)


async def test_a_type_remembers_for_how_long_its_results_are_kept(store: Store) -> None:
    await store.registry.save_job_type(JobType("embed", cache_ttl_s=3600.5))
    await store.registry.save_job_type(JobType("label"))
    kinds = {kind.name: kind.cache_ttl_s for kind in await store.registry.job_types()}
    assert kinds == {"embed": 3600.5, "label": None}


async def test_clearing_the_databases_forgets_results(store: Store) -> None:
    term = await store.take_lead("m", NOW)
    await store.results.save_results([ONE], NOW)
    await store.clear(term, [])
    assert await store.results.kept_results() == {}

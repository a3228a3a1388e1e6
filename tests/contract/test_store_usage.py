"""What was used by whom, and how tasks went by step, in both stores."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from corral.core.insight.metric import MetricSpan, TaskStep
from corral.core.insight.usage import UsageBy, UsageSpan, UsageStep
from corral.core.nodes.worker import WorkerRecord, WorkerSpec, WorkerState
from corral.core.tasks.needs import read_needs
from corral.core.tasks.options import SpecOptions
from corral.core.tasks.outcome import OutcomeKind
from corral.core.tasks.task import State
from corral.store.base import Store
from tests.contract.conftest import (
    NOW,
    Insert,
    assigned,
    make_task,
    settlement,
)

DAY = 86_400
FAILURE: dict[str, Any] = {"state": State.FAILED, "outcome": OutcomeKind.FAILED}
START = int(NOW.timestamp()) // DAY * DAY


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START + seconds, UTC)


def span(begin: int, end: int, step_s: int, now: float | None = None) -> UsageSpan:
    return UsageSpan(
        START + begin, START + end, step_s, at(end if now is None else now)
    )


def worker(worker_id: str, gpus: str) -> WorkerRecord:
    spec = WorkerSpec(worker_id, "a:B", ("echo",), gpus=gpus)
    return WorkerRecord(worker_id, "n1", spec, state=WorkerState.READY)


async def test_gpu_hours_are_told_by_owner_type_and_label(
    store: Store, insert: Insert, term: int
) -> None:
    await store.registry.save_workers([worker("w1", gpus="2")])
    await store.registry.save_workers([worker("w2", gpus="gpu:0")])
    half = SpecOptions(resources=read_needs({"gpus": 0.5}))
    red = {"team": "red", 'a"ü': "ö,\\"}
    done, part, failed, runs, none = await insert(
        assigned(make_task(owner="ann", labels=red)),
        assigned(make_task(owner="ann", job_type="train", labels=red, options=half)),
        assigned(make_task(owner="bob"), "w2"),
        assigned(make_task(owner="bob"), "w2"),
        assigned(make_task(owner="eve"), "nobody"),
    )
    await store.tasks.start_tasks(term, [(runs.id, 1, at(7200))])
    await store.tasks.settle_tasks(
        term,
        [
            settlement(done.id, started_at=at(0), finished_at=at(600)),
            settlement(part.id, started_at=at(0), finished_at=at(3600)),
            settlement(failed.id, started_at=at(3000), finished_at=at(4200), **FAILURE),
            settlement(none.id, started_at=at(10), finished_at=at(20)),
        ],
    )
    found = await store.metrics.usage(UsageBy.OWNER, "", span(0, 9000, 3600))
    assert list(found) == [
        UsageStep("ann", START, 600 * 2 + 1800.0, 4200.0, 1),
        UsageStep("ann", START + 3600, 0.0, 0.0, 1),
        UsageStep("bob", START, 600.0, 600.0, 0),
        UsageStep("bob", START + 3600, 600.0, 600.0, 1),
        UsageStep("bob", START + 7200, 1800.0, 1800.0, 0),
        UsageStep("eve", START, 0.0, 10.0, 1),
    ]
    by_type = await store.metrics.usage(UsageBy.JOB_TYPE, "", span(0, 9000, DAY))
    assert [(row.name, row.run_s) for row in by_type] == [
        ("echo", 600 + 1200 + 1800 + 10.0),
        ("train", 3600.0),
    ]
    strange = await store.metrics.usage(UsageBy.LABEL, 'a"ü', span(0, 9000, DAY))
    assert [row.name for row in strange] == ["", "ö,\\"]
    by_team = await store.metrics.usage(UsageBy.LABEL, "team", span(0, 9000, DAY))
    assert [(row.name, row.gpu_s) for row in by_team] == [
        ("", 1200 + 1800.0),
        ("red", 1200 + 1800.0),
    ]


async def test_only_the_time_asked_for_counts(
    store: Store, insert: Insert, term: int
) -> None:
    (long,) = await insert(assigned(make_task(owner="ann")))
    ended = settlement(long.id, started_at=at(0), finished_at=at(3 * DAY))
    await store.tasks.settle_tasks(term, [ended])
    found = await store.metrics.usage(
        UsageBy.OWNER, "", span(DAY, 2 * DAY, DAY, 9 * DAY)
    )
    assert sum(row.run_s for row in found) == DAY
    assert (
        await store.metrics.usage(UsageBy.OWNER, "", span(4 * DAY, 5 * DAY, DAY)) == []
    )


async def test_the_cards_of_a_worker_that_is_gone_still_count(
    store: Store, insert: Insert, term: int
) -> None:
    await store.registry.save_workers([worker("w1", gpus="4")])
    (task,) = await insert(assigned(make_task(owner="ann")))
    ended = settlement(task.id, started_at=at(0), finished_at=at(10))
    await store.tasks.settle_tasks(term, [ended])
    for _ in range(2):
        await store.registry.delete_worker("w1")
    (row,) = await store.metrics.usage(UsageBy.OWNER, "", span(0, 60, 3600))
    assert row.gpu_s == 40.0


async def test_tasks_are_told_by_step_with_the_most_that_waited(
    store: Store, insert: Insert, term: int
) -> None:
    first, second, *_ = await insert(
        assigned(make_task()), assigned(make_task()), make_task(), make_task()
    )
    when = (NOW.timestamp() // 3600 + 1) * 3600 - START
    await store.tasks.settle_tasks(
        term,
        [
            settlement(first.id, finished_at=at(when + 10)),
            settlement(second.id, finished_at=at(when + 310), **FAILURE),
        ],
    )
    await store.metrics.roll_up(at(when + 900))
    begin = START + int(when)
    steps = await store.metrics.task_history(MetricSpan(begin, begin + 3600, 300))
    took = steps[0].response_s
    assert list(steps) == [
        TaskStep(begin, 1, 0, took, None),
        TaskStep(begin + 300, 0, 1, 0.0, None),
        TaskStep(begin + 900, 0, 0, 0.0, 2),
    ]
    assert took == pytest.approx((at(when + 10) - NOW).total_seconds())
    (whole,) = await store.metrics.task_history(MetricSpan(begin, begin + 3600, 3600))
    assert whole == TaskStep(begin, 1, 1, took, 2)

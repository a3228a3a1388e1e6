"""/metrics as Prometheus reads it: which figures there are, and what they count."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.insight.test_metrics import SAMPLE
from tests.unit.api.nodes.test_gpus import card
from tests.unit.api.tasks.test_caching import keeping, known, ran
from tests.unit.api.world import CONFIG, Json, World, fault, outcome, running

DEPLOY = Path(__file__).parents[4] / "deploy"
DOCS = Path(__file__).parents[4] / "docs"
_SERIES = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_GROUPED = re.compile(r"\bby \([^)]*\)")
_METRIC = re.compile(r"\b(?:corral|http|task|tasks|process)_[a-z_]+\b")


async def scrape(world: World) -> str:
    answer = await world.read.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


async def figures(world: World) -> dict[str, dict[str, float]]:
    """By name and by labels as they are written, without the `le` of buckets."""
    found: dict[str, dict[str, float]] = {}
    for line in (await scrape(world)).splitlines():
        if not line.startswith("#"):
            match = _SERIES.fullmatch(line)
            assert match, line
            found.setdefault(match[1], {})[match[2] or ""] = float(match[3])
    return found


async def work(world: World, count: int = 1, **more: Any) -> None:
    """Tasks that a worker of another machine completes."""
    worker = await world.worker()
    for _ in range(count):
        await world.submit.submit(**more)
        await worker.finish(worker.take_one())


@pytest.mark.spec("D19", "C40", "C43")
async def test_ended_tasks_are_counted_by_status_with_their_durations(
    world: World,
) -> None:
    worker = await world.worker()
    before = await figures(world)
    assert before["tasks_total"]['status="completed"'] == 0
    await world.submit.submit()
    await worker.finish(worker.take_one())
    await world.submit.submit()
    await worker.fail(worker.take_one())
    task_id = await world.submit.submit()
    await world.submit.delete(f"/tasks/{task_id}")
    after = await figures(world)
    ended = after["tasks_total"]
    assert ended['status="completed"'] == 1
    assert ended['status="failed"'] == 1
    assert ended['status="cancelled"'] == 1
    assert after["task_duration_seconds_count"]['task_type="echo"'] == 2
    assert after["task_duration_seconds_sum"]['task_type="echo"'] == 1.0
    buckets = after["task_duration_seconds_bucket"]
    assert buckets['task_type="echo",le="0.25"'] == 0
    assert buckets['task_type="echo",le="0.5"'] == 2
    assert buckets['task_type="echo",le="+Inf"'] == 2
    assert after["corral_dead_letters_total"]['reason="failed"'] == 1
    assert after["corral_tasks_submitted_total"]['task_type="echo"'] == 3


async def test_tries_that_failed_and_lost_workers_are_retries(world: World) -> None:
    worker = await world.worker()
    await world.submit.submit(retries=1)
    await worker.fail(worker.take_one())
    await world.step(5, worker.node)
    await worker.begin(worker.take_one())
    await worker.node.beat(worker.word(state="lost", pid=None))
    assert (await figures(world))["corral_task_retries_total"] == {
        'reason="failed"': 1,
        'reason="lost"': 1,
    }


async def test_how_long_tasks_waited_is_told_by_type(world: World) -> None:
    worker = await world.worker("echo", "sum")
    await world.submit.submit("sum")
    await world.submit.submit("echo")
    world.clock.step(7)
    for _ in range(2):
        began = world.clock.now().timestamp()
        item = worker.take_one()
        await worker.report(outcomes=[outcome(item, started_at=began)])
    found = await figures(world)
    for kind in ("sum", "echo"):
        of_kind = f'task_type="{kind}"'
        assert found["corral_task_wait_seconds_count"][of_kind] == 1
        assert found["corral_task_wait_seconds_sum"][of_kind] == 7
        assert found["corral_task_wait_seconds_bucket"][f'{of_kind},le="5"'] == 0
        assert found["corral_task_wait_seconds_bucket"][f'{of_kind},le="10"'] == 1


@pytest.mark.spec("C39")
async def test_what_waits_is_told_by_type(world: World) -> None:
    worker = await world.worker("echo", "sum")
    for kind in ("echo", "sum", "sum"):
        await world.submit.submit(kind)
    found = await figures(world)
    assert found["corral_queue_depth"] == {'task_type="echo"': 0, 'task_type="sum"': 2}
    assert found["corral_tasks_active"][""] == 1
    await worker.finish(worker.take_one())


async def test_a_card_shows_its_figures_under_its_node_and_number(world: World) -> None:
    node = await world.node()
    await node.beat(
        sample=SAMPLE,
        gpus=[
            card("GPU-0", temperature_c=40.0, utilization_percent=75.0, power_w=210.0),
            card("GPU-1", index=1),
        ],
    )
    found = await figures(world)
    (first, second) = found["corral_gpu_memory_bytes"]
    assert f'node="{node.id}"' in first
    assert 'gpu="0"' in first
    assert 'gpu="1"' in second
    assert found["corral_gpu_temperature_celsius"] == {first: 40}
    assert found["corral_gpu_utilization_ratio"][first] == 0.75
    assert found["corral_gpu_power_watts"][first] == 210
    assert found["corral_gpu_memory_used_bytes"].keys() == {first, second}
    assert found["corral_gpu_healthy"][second] == 1
    (cpu,) = found["corral_node_cpu_ratio"].values()
    assert cpu == 0.25
    (memory,) = found["corral_node_memory_used_bytes"].values()
    assert memory == 250 * 1024 * 1024


@pytest.mark.spec("C36")
async def test_the_age_of_a_heartbeat_grows_until_the_next(world: World) -> None:
    node = await world.node()
    await node.beat()
    world.clock.step(7)
    (age,) = (await figures(world))["corral_node_heartbeat_age_seconds"].values()
    assert age == 7
    await node.beat()
    (age,) = (await figures(world))["corral_node_heartbeat_age_seconds"].values()
    assert age == 0


@pytest.mark.spec("C42")
async def test_loads_of_a_model_are_counted_and_timed_and_so_are_hits(
    world: World,
) -> None:
    worker = await world.worker()
    for load_s in (3.0, 0.0, 0.0):
        await world.submit.submit(model_name="tiny")
        await worker.report(outcomes=[outcome(worker.take_one(), load_s=load_s)])
    found = await figures(world)
    tiny = 'model="tiny"'
    assert found["corral_model_loads_total"] == {tiny: 1}
    assert found["corral_model_load_seconds_sum"] == {tiny: 3}
    assert found["corral_model_hits_total"] == {tiny: 2}


async def test_results_that_are_given_again_count_as_hits_and_as_completed(
    world: World,
) -> None:
    worker = await keeping(world)
    first = await ran(world, worker)
    await known(world, first)
    found, add = await figures(world), 'task_type="add"'
    assert found["corral_result_cache_misses_total"][add] == 1
    assert found["corral_result_cache_hits_total"][add] == 1
    assert found["corral_result_cache_bytes"][add] > 0
    assert found["tasks_total"]['status="completed"'] == 2
    assert found["task_duration_seconds_count"][add] == 1


async def test_requests_are_counted_by_route_and_not_by_path(world: World) -> None:
    for name in ("one", "two"):
        await world.read.get(f"/tasks/{name}")
    await world.read.get("/no/such/path")
    found = await figures(world)
    missed = 'endpoint="/tasks/{task_id}",method="GET",status="404"'
    assert found["http_requests_total"][missed] == 2
    nowhere = 'endpoint="none",method="GET",status="404"'
    assert found["http_requests_total"][nowhere] == 1
    timed = 'endpoint="/tasks/{task_id}",method="GET"'
    assert found["http_request_duration_seconds_count"][timed] == 2


async def test_so_many_types_as_there_are_series_are_bounded(world: World) -> None:
    worker = await world.worker(*(f"kind-{n}" for n in range(130)))
    for number in range(130):
        await world.submit.submit(f"kind-{number}")
        await worker.finish(worker.take_one())
    found = await figures(world)
    counts = found["task_duration_seconds_count"]
    assert len(counts) == 101
    assert counts['task_type="other"'] == 30
    assert len(found["corral_queue_depth"]) == 101


async def test_a_name_with_quotes_stays_inside_its_label(world: World) -> None:
    node = await world.node()
    odd = 'a "card"\\ with\nlines'
    await node.beat(sample=SAMPLE, gpus=[card(name=odd)])
    (labels,) = (await figures(world))["corral_gpu_memory_bytes"]
    told = dict(_LABEL.findall(labels))
    assert json.loads(f'"{told["model"]}"') == odd


async def test_the_scheduler_says_what_its_decisions_take(world: World) -> None:
    await work(world, 3)
    found = await figures(world)
    assert found["corral_scheduler_decision_seconds_count"][""] >= 3
    decided = found["corral_scheduler_decision_seconds_count"][""]
    assert found["corral_scheduler_cycle_seconds_count"][""] >= decided


async def test_only_who_may_read_sees_metrics_unless_they_are_public(
    world: World,
) -> None:
    fault(await world.nobody.get("/metrics"), 401, "unauthenticated")
    config = replace(CONFIG, is_metrics_public=True)
    async with running(config) as public:
        assert (await public.nobody.get("/metrics")).status_code == 200
        fault(await public.nobody.get("/nodes"), 401, "unauthenticated")


def _expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("expr", "query", "definition") and isinstance(each, str):
                yield each
            else:
                yield from _expressions(each)
    elif isinstance(value, list):
        for each in value:
            yield from _expressions(each)


def _deployed() -> list[str]:
    import yaml

    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    board: Json = json.loads((DEPLOY / "grafana" / "corral.json").read_text())
    return [*_expressions(rules), *_expressions(board)]


async def test_every_metric_that_the_dashboard_and_the_rules_name_exists(
    world: World,
) -> None:
    node = await world.node()
    await node.beat(sample=SAMPLE, gpus=[card()])
    known = set(re.findall(r"# TYPE (\S+) ", await scrape(world)))
    known |= {f"{name}_{part}" for name in known for part in ("bucket", "sum", "count")}
    plain = [_GROUPED.sub("", text) for text in _deployed()]
    named = {name for text in plain for name in _METRIC.findall(text)}
    assert len(named) > 20
    assert named <= known


async def test_every_metric_is_in_the_documentation(world: World) -> None:
    known = set(re.findall(r"# TYPE (\S+) ", await scrape(world)))
    told = (DOCS / "metrics.md").read_text()
    assert not [name for name in sorted(known) if f"`{name}" not in told]

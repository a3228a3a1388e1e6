"""Traces of tasks, as a real collector gets them, and what becomes of them without."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from corral.cli.serve.config import trace_config
from corral.errors import SettingsError
from corral.manager.tracing import TraceConfig
from corral.settings import load
from tests.trace_collector import Collector, Seen, trace_collector
from tests.unit.api.world import (
    CONFIG,
    FakeWorker,
    Json,
    World,
    outcome,
    quiet,
    running,
    said,
)

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{CALLER}-01"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with trace_collector() as made:
        yield made


@asynccontextmanager
async def traced(url: str, **more: Any) -> AsyncIterator[World]:
    config = TraceConfig(url, share=1.0, **more)
    async with running(replace(CONFIG, traces=config)) as world:
        yield world


async def submit(world: World, parent: str = PARENT, **more: Any) -> str:
    headers = {"traceparent": parent} if parent else {}
    body = {"task_type": "echo", **more}
    answer = await world.submit.post("/tasks", body, headers=headers)
    return str(said(answer)["task_id"])


async def work(worker: FakeWorker, item: Json, seconds: float, **more: Any) -> None:
    """The task runs for so long, and its end is told a tenth of a second later."""
    clock = worker.node.world.clock
    began = clock.now().timestamp()
    clock.step(seconds + 0.1)
    told = outcome(item, started_at=began, duration_s=seconds, **more)
    said(await worker.report(outcomes=[told]))


async def figure(world: World, name: str) -> float:
    text = (await world.read.get("/metrics")).text
    values = [line.split()[1] for line in text.splitlines() if line.startswith(name)]
    return sum(map(float, values))


def inside(child: Seen, parent: Seen) -> bool:
    return parent.begin <= child.begin <= child.end <= parent.end


async def test_a_task_is_one_trace_of_queue_load_and_run_under_its_caller(
    collector: Collector,
) -> None:
    async with traced(collector.url) as world:
        said(await world.operate.post("/job-types", {"name": "echo"}))
        task_id = await submit(world, model_name="m1")
        world.clock.step(2)
        worker = await world.worker()
        await world.step(0, worker.node)
        item = worker.take_one()
        world.clock.step(3)
        await work(worker, item, 5, load_s=3.0)
        await world.manager.ctx.tracing.flush()
        assert await figure(world, "corral_traces_sent_total") == 1
    root, queue, load, run = (
        collector.one(name) for name in ("task echo", "queue", "load", "run")
    )
    assert len(collector.spans) == 4
    assert {span.trace_id for span in collector.spans} == {TRACE_ID}
    assert root.parent_id == CALLER
    assert {span.parent_id for span in (queue, load, run)} == {root.id}
    assert len({span.id for span in collector.spans}) == 4
    assert item["traceparent"] == f"00-{TRACE_ID}-{run.id}-01"
    assert all(inside(span, root) for span in (queue, load, run))
    assert (queue.begin, queue.end, load.end) == (root.begin, load.begin, run.begin)
    spans = (queue, load, run, root)
    assert [round(span.seconds, 3) for span in spans] == [2, 3, 5, 10.1]
    assert root.facts["corral.task_id"] == task_id
    assert root.facts["corral.status"] == run.facts["corral.outcome"] == "completed"
    assert root.facts["corral.model"] == load.facts["corral.model"] == "m1"
    assert run.facts["corral.worker_id"] == worker.id
    assert run.facts["corral.node_id"] == worker.node.id
    assert [event.name for event in queue.events] == ["assigned"]
    assert {span.status for span in collector.spans} == {0}
    assert {span.service for span in collector.spans} == {"corral"}


async def test_a_retried_task_shows_both_attempts_in_its_trace(
    collector: Collector,
) -> None:
    error = {"kind": "exception", "message": "no luck, token=abcdef123456"}
    async with traced(collector.url) as world:
        worker = await world.worker()
        await submit(world, retries=1)
        first = worker.take_one()
        await work(worker, first, 1, kind="failed", error=error)
        await world.manager.ctx.tracing.flush()
        # The first attempt is told at once, the task when it is over.
        assert not collector.named("task echo")
        await world.step(5, worker.node)
        second = worker.take_one()
        await work(worker, second, 1)
        await world.manager.ctx.tracing.flush()
    root = collector.one("task echo")
    failed, done = collector.named("run")
    early, late = collector.named("queue")
    assert {span.parent_id for span in (failed, done, early, late)} == {root.id}
    assert [s.facts["corral.attempt"] for s in (failed, done, root)] == [1, 2, 2]
    assert failed.end <= late.begin <= late.end <= done.begin
    assert all(inside(span, root) for span in (failed, done, early, late))
    assert (failed.status, done.status, root.status) == (2, 0, 0)
    assert failed.facts["error.type"] == "exception"
    assert failed.message == "no luck, token=********"
    (event,) = root.events
    assert (event.name, event.facts["corral.attempt"]) == ("retry", 1)
    assert first["traceparent"].split("-")[2] == failed.id
    assert second["traceparent"].split("-")[2] == done.id


async def test_a_lost_worker_and_a_final_failure_are_in_the_trace(
    collector: Collector,
) -> None:
    async with traced(collector.url) as world:
        worker = await world.worker()
        await submit(world)
        await worker.begin(worker.take_one())
        world.clock.step(1)
        await worker.node.beat(worker.word(state="lost", pid=None))
        await worker.start()
        await world.step(5, worker.node)
        await worker.fail(worker.take_one(), "it broke")
        await world.manager.ctx.tracing.flush()
    root = collector.one("task echo")
    lost, failed = collector.named("run")
    assert lost.facts["corral.outcome"] == "lost"
    assert [event.name for event in root.events] == ["lost"]
    assert (root.status, root.message) == (2, "it broke")
    assert (failed.status, root.facts["error.type"]) == (2, "exception")


async def test_a_task_without_a_caller_is_found_by_its_id(collector: Collector) -> None:
    async with traced(collector.url, service="gpu", headers={"X-Team": "ä"}) as world:
        worker = await world.worker()
        task_id = await submit(world, parent="")
        await submit(world, parent="", task_id="my-own")
        for _ in range(2):
            await work(worker, worker.take_one(), 1)
        cancelled = await submit(world, parent="")
        said(await world.submit.delete(f"/tasks/{cancelled}"))
        await world.manager.ctx.tracing.flush()
    mine, own, gone = collector.named("task echo")
    assert mine.trace_id == task_id.replace("-", "")
    assert own.facts["corral.task_id"] == "my-own"
    assert (mine.parent_id, own.parent_id) == ("", "")
    assert gone.facts["corral.status"] == "cancelled"
    assert {span.service for span in collector.spans} == {"gpu"}
    assert all("x-team" in headers for headers in collector.headers)


async def test_a_requeued_task_has_a_span_for_each_run(collector: Collector) -> None:
    async with traced(collector.url) as world:
        worker = await world.worker()
        task_id = await submit(world)
        await worker.fail(worker.take_one())
        world.clock.step(60)
        said(await world.submit.post(f"/tasks/{task_id}/requeue"))
        await quiet()
        await work(worker, worker.take_one(), 1)
        await world.manager.ctx.tracing.flush()
    first, second = collector.named("task echo")
    assert first.id != second.id
    assert first.trace_id == second.trace_id == TRACE_ID
    assert first.end <= second.begin
    assert round(second.seconds, 3) == 1.1
    assert collector.named("run")[1].parent_id == second.id


async def test_an_answer_from_the_cache_is_a_span_of_its_own(
    collector: Collector,
) -> None:
    async with traced(collector.url) as world:
        kind = {"name": "add", "cache_ttl_s": 60}
        said(await world.operate.post("/job-types", kind))
        worker = await world.worker("add")
        first = await submit(world, task_type="add")
        await work(worker, worker.take_one(), 1, result=3)
        await submit(world, task_type="add")
        await world.manager.ctx.tracing.flush()
    ran, cached = collector.named("task add")
    assert "corral.cached_from" not in ran.facts
    assert cached.facts["corral.cached_from"] == first
    assert len(collector.named("run")) == 1


async def test_who_was_not_sampled_is_not_traced(collector: Collector) -> None:
    unsampled = PARENT[:-2] + "00"
    async with traced(collector.url, ratio=0.0) as world:
        worker = await world.worker()
        for parent in (unsampled, "", PARENT):
            task_id = await submit(world, parent=parent)
            item = worker.take_one()
            if parent == unsampled:
                assert item["traceparent"] == unsampled
            if not parent:
                assert item["traceparent"].startswith(f"00-{task_id.replace('-', '')}")
                assert item["traceparent"].endswith("-00")
            await work(worker, item, 1)
        await world.manager.ctx.tracing.flush()
    assert len(collector.named("task echo")) == 1


async def test_tasks_go_on_and_drops_are_counted_while_the_collector_is_away() -> None:
    with socket.socket() as closed:
        # Bound and not listening: nobody answers there, and nobody else can.
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        async with traced(url, most=3) as world:
            worker = await world.worker()
            for _ in range(6):
                task_id = await submit(world)
                await work(worker, worker.take_one(), 1)
                await world.manager.ctx.tracing.flush()
                assert await world.read.status(task_id) == "completed"
            # The first is under way, three wait, two found no room.
            assert await figure(world, "corral_traces_dropped_total") == 2
            assert await figure(world, "corral_traces_sent_total") == 0


async def test_what_a_collector_could_not_take_is_sent_again_later(
    collector: Collector,
) -> None:
    async with traced(collector.url) as world:
        worker = await world.worker()
        collector.status = 503
        await submit(world)
        await work(worker, worker.take_one(), 1)
        await world.manager.ctx.tracing.flush()
        assert not collector.spans
        collector.status = 200
        await world.manager.ctx.tracing.flush()
        assert len(collector.named("task echo")) == 1
        collector.status = 401
        await submit(world)
        await work(worker, worker.take_one(), 1)
        await world.manager.ctx.tracing.flush()
        assert await figure(world, "corral_traces_dropped_total") == 1
        assert await figure(world, "corral_traces_sent_total") == 1


async def test_what_is_left_is_sent_when_the_manager_stops(
    collector: Collector,
) -> None:
    async with traced(collector.url) as world:
        worker = await world.worker()
        for _ in range(3):
            await submit(world)
            await work(worker, worker.take_one(), 1)
    # Twice, where the stop came between the sending and its answer.
    assert len({span.id for span in collector.named("task echo")}) == 3


async def test_without_a_collector_nothing_is_made_of_tasks(world: World) -> None:
    worker = await world.worker()
    await submit(world)
    item = worker.take_one()
    assert item["traceparent"] == PARENT
    await work(worker, item, 1)
    assert not world.manager.ctx.tracing.loops()
    assert await figure(world, "corral_traces_sent_total") == 0


def test_the_collector_is_read_from_the_usual_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert trace_config(load(home=tmp_path)) is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.lan:4318/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s%20cret, x-team=red")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our cluster")
    made = trace_config(load(home=tmp_path))
    assert made == TraceConfig(
        "http://collector.lan:4318",
        {"api-key": "s cret", "x-team": "red"},
        "our cluster",
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key")
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_HEADERS must be"):
        trace_config(load(home=tmp_path))

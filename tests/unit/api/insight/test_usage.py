"""/usage and the tasks of /cluster/metrics: who used what, and how it went."""

from __future__ import annotations

import csv
import io

import pytest

from corral.core.access.key import Scope
from tests.unit.api.world import Caller, World, fault, outcome, said


async def work(world: World, seconds: float) -> None:
    """Ann's task waits for cards; bob's runs, and fails."""
    worker = await world.worker("echo")
    ann, bob = [await named(world, name) for name in ("ann", "bob")]
    await ann.submit(resources={"gpus": 2})
    await bob.submit(labels={"team": "=red"})
    item = worker.take_one()
    began = world.clock.now().timestamp()
    await worker.begin(item)
    world.clock.step(seconds)
    error = {"kind": "exception", "message": "it broke"}
    ended = outcome(item, kind="failed", error=error, started_at=began)
    said(await worker.report(outcomes=[ended]))


async def named(world: World, name: str) -> Caller:
    _, key = await world.manager.access.keys.create(Scope.SUBMIT, name)
    return Caller(world.http, key)


@pytest.mark.parametrize("by", ["nobody", "label:", "", "owner\x00"])
async def test_what_means_nothing_is_refused(world: World, by: str) -> None:
    answer = await world.read.get("/usage", by=by)
    fault(answer, 422, "invalid_field")
    answer = await world.read.get("/usage", **{"from": "-1h", "to": "-2h"})
    fault(answer, 422, "invalid_field")


async def test_hours_are_told_by_owner_type_and_label(world: World) -> None:
    await work(world, 1800)
    told = await world.read.ask("/usage", by="owner", **{"from": "-24h"})
    (bob,) = told["groups"]
    assert (bob["name"], bob["hours"], bob["runs"]) == ("bob", 0.5, 1)
    assert told["step_s"] == 3600
    assert len(bob["series"]) == len(told["times"])
    assert told["hours"] == 0.5
    by_type = await world.read.ask("/usage", by="job_type")
    assert [group["name"] for group in by_type["groups"]] == ["echo"]
    assert by_type["step_s"] == 86_400
    by_team = await world.read.ask("/usage", by="label:team")
    assert [group["name"] for group in by_team["groups"]] == ["=red"]


async def test_a_sheet_gets_it_as_csv(world: World) -> None:
    await work(world, 3600)
    headers = {"Accept": "text/csv"}
    asked = await world.read.send("GET", "/usage?from=-24h", headers=headers)
    named = await world.read.get("/usage", format="csv", **{"from": "-24h"})
    assert asked.text == named.text
    assert named.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(named.text)))
    assert {row["owner"] for row in rows} == {"bob"}
    assert sum(float(row["hours"]) for row in rows) == pytest.approx(1.0)
    teams = await world.read.get("/usage", by="label:team", format="csv")
    assert ",'=red," in teams.text, "a sheet must not take it for a formula"


@pytest.mark.spec("C39", "C40")
async def test_the_cluster_tells_how_tasks_went_by_step(world: World) -> None:
    await work(world, 60)
    world.clock.step(120)
    await world.manager.insight.charts.step()
    told = (await world.read.ask("/cluster/metrics", timeframe="1h"))["tasks"]
    assert told["step_s"] == 300
    assert len(told["times"]) == len(told["waiting"]) == len(told["response_s"])
    assert sum(told["failed"]) == 1
    assert max(n for n in told["waiting"] if n is not None) == 1

"""Paths of an app with timeouts of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from corral.core.tasks.app import App
from tests.twins.store import MemoryStore
from tests.unit.api.target_app import Target, serving
from tests.unit.api.world import World, fault, running, said


@pytest.fixture(scope="module")
def service() -> Iterator[Target]:
    with serving() as made:
        yield made


@pytest.fixture
def target(service: Target) -> Iterator[Target]:
    yield service
    service.forget()


async def register(world: World, url: str, **more: Any) -> None:
    await world.admin.tell("/apps", {"name": "echo", "url": url, **more})


async def route(world: World, path: str, timeout: float) -> dict[str, Any]:
    body = {"path": path, "timeout": timeout}
    return await world.admin.tell("/apps/echo/routes", body)


@pytest.mark.parametrize(
    ("path", "limit_s"),
    [
        ("/train", 600.0),
        ("/train/", 600.0),
        ("/train/fast/x", 5.0),
        ("/train/other", 600.0),
        ("/training", 60.0),
        ("/", 60.0),
        ("", 60.0),
    ],
)
def test_the_longest_path_decides(path: str, limit_s: float) -> None:
    app = App("a", "http://x", timeouts={"/train": 600.0, "/train/fast/": 5.0})
    assert app.timeout_for(path) == limit_s


async def test_a_path_has_its_own_timeout_and_others_the_apps(
    world: World, target: Target
) -> None:
    await register(world, target.url, timeout=30)
    await route(world, "/hold", 0.2)
    error = fault(await world.submit.get("/echo/hold?x=1"), 504, "gateway_timeout")
    assert "within 0.2 s" in error["message"]
    said(await world.submit.get("/echo/other"))


async def test_a_short_app_may_have_a_long_path(world: World, target: Target) -> None:
    await register(world, target.url, timeout=0.01)
    await route(world, "/nap", 20)
    said(await world.submit.get("/echo/nap"))


async def test_a_job_types_endpoint_has_the_timeout_of_its_path(
    world: World, target: Target
) -> None:
    await register(world, target.url)
    await route(world, "/hold", 0.2)
    await world.operate.tell("/job-types", {"name": "call", "target": "echo/hold"})
    task_id = await world.submit.submit("call", timeout=20)
    task = await world.read.ask(f"/tasks/{task_id}", wait=20)
    assert (task["status"], task["error"]["kind"]) == ("timed_out", "timeout")
    assert "within 0.2 s" in task["error"]["message"]


async def test_routes_are_shown_kept_and_taken_away(target: Target) -> None:
    store = MemoryStore()
    rows = [{"path": "/a", "timeout": 5.0}, {"path": "/b/c", "timeout": 6.0}]
    async with running(inner=store) as world:
        await register(world, target.url)
        await route(world, "/b/c", 1)
        await route(world, "/a", 5)
        assert (await route(world, "/b/c", 6))["routes"] == rows
        await register(world, target.url, timeout=3)
    async with running(inner=store) as world:
        (app,) = (await world.read.ask("/apps"))["apps"]
        assert (app["routes"], app["timeout"]) == (rows, 3)
        path = "/apps/echo/routes?path=/a"
        assert said(await world.admin.delete(path))["routes"] == rows[1:]
        fault(await world.admin.delete(path), 404, "not_found")


@pytest.mark.parametrize("path", ["", "/", "a", "/../x", "/a b", "/a?b", "//a", "/ä"])
async def test_a_path_that_can_be_none_is_refused(
    world: World, target: Target, path: str
) -> None:
    await register(world, target.url)
    body = {"path": path, "timeout": 5}
    error = fault(
        await world.admin.post("/apps/echo/routes", body), 422, "invalid_field"
    )
    assert error["details"]["field"] == "path"


@pytest.mark.parametrize("timeout", [0, -1, 1e9])
async def test_a_timeout_that_can_be_none_is_refused(
    world: World, target: Target, timeout: float
) -> None:
    await register(world, target.url)
    body = {"path": "/a", "timeout": timeout}
    error = fault(
        await world.admin.post("/apps/echo/routes", body), 422, "invalid_field"
    )
    assert error["details"]["field"] == "timeout"


async def test_a_route_of_no_app_is_a_404(world: World) -> None:
    body = {"path": "/a", "timeout": 5}
    fault(await world.admin.post("/apps/none/routes", body), 404, "not_found")

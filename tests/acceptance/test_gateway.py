"""The gateway on a whole cluster: streams, many at once, refusals, a killed manager."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.acceptance.cluster import Cluster, until
from tests.unit.api.target_app import Target, serving

AT_ONCE = 16
ROUNDS = 15
# 1.10 to 1.22 on a quiet machine; here it only has to be no other order of things.
SLOWER_AT_MOST = 2.0


@pytest.fixture
def target() -> Iterator[Target]:
    with serving() as made:
        yield made


@pytest.fixture
def http(shared: Cluster) -> Iterator[httpx.Client]:
    key = (shared.home / "admin.key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=shared.url, headers=headers, timeout=60) as made:
        yield made


def register(http: httpx.Client, url: str) -> httpx.Response:
    return http.post("/apps", json={"name": "target", "url": url, "timeout": 20})


def test_an_answer_reaches_the_caller_while_the_app_still_writes_it(
    http: httpx.Client, target: Target
) -> None:
    assert register(http, target.url).status_code == 201
    with http.stream("GET", "/target/parts") as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"first,"
        target.go.set()
        assert b"".join(parts) == b"second"


def test_a_body_reaches_the_app_while_the_caller_still_writes_it(
    http: httpx.Client, target: Target
) -> None:
    register(http, target.url)
    waited: list[bool] = []

    def body() -> Iterator[bytes]:
        yield b"x" * 1000
        waited.append(target.arrived.wait(20))
        yield b"y" * 1000

    answer = http.post("/target/swallow", content=body())
    assert answer.json() == {"size": 2000}
    assert waited == [True]


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(
    http: httpx.Client, target: Target
) -> None:
    body = {"name": "target", "url": target.url, "timeout": 0.3}
    assert http.post("/apps", json=body).status_code == 201
    with (
        pytest.raises(httpx.RemoteProtocolError),
        http.stream("GET", "/target/parts") as answer,
    ):
        answer.read()
    assert http.get("/health").status_code == 200


async def medians(urls: list[str], headers: dict[str, str]) -> list[float]:
    """The best median of calls made at once, for each URL.

    The URLs take turns, so that whatever else this machine does slows all of them.
    """
    limits = httpx.Limits(max_connections=AT_ONCE)
    async with httpx.AsyncClient(headers=headers, timeout=60, limits=limits) as client:

        async def call(url: str) -> float:
            begun = time.perf_counter()
            (await client.get(url)).raise_for_status()
            return time.perf_counter() - begun

        async def at_once(url: str) -> float:
            return statistics.median(
                await asyncio.gather(*(call(url) for _ in range(AT_ONCE)))
            )

        rounds = [[await at_once(url) for url in urls] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*rounds, strict=True)]


def test_sixteen_calls_at_once_cost_little_more_than_direct_ones(
    shared: Cluster, http: httpx.Client, target: Target
) -> None:
    register(http, target.url)
    headers = {"Authorization": http.headers["Authorization"]}
    urls = [f"{target.url}/nap", f"{shared.url}/target/nap"]
    direct, through = asyncio.run(medians(urls, headers))
    assert through <= direct * SLOWER_AT_MOST, f"{through=:.4f} {direct=:.4f}"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]"]
)
def test_the_managers_own_address_is_refused(
    shared: Cluster, http: httpx.Client, host: str
) -> None:
    answer = register(http, f"http://{host}:{shared.port}")
    assert answer.status_code == 422
    assert "own servers" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254", "http://2852039166", "http://[::ffff:a9fe:a9fe]"]
)
def test_metadata_addresses_are_refused(http: httpx.Client, url: str) -> None:
    assert register(http, url).status_code == 422


def test_a_call_the_manager_died_with_is_made_again_and_recorded_once(
    shared: Cluster, http: httpx.Client, target: Target
) -> None:
    register(http, target.url)
    http.post("/job-types", json={"name": "held", "target": "target/hold"})
    task = http.post("/tasks", json={"task_type": "held"}).json()["task_id"]
    assert target.arrived.wait(20)
    old = shared.pid("manager")
    os.kill(old, signal.SIGKILL)
    target.go.set()
    until("another manager", lambda: shared.pid("manager") not in (0, old))
    until("it answers", lambda: is_up(shared))
    told = http.get(f"/tasks/{task}", params={"wait": 20}).json()
    assert (told["status"], told["result"]) == ("completed", {"held": True})
    assert [a["outcome"] for a in told["attempts"]] == ["returned"]
    assert http.get("/target/nap").status_code == 200


def is_up(cluster: Cluster) -> bool:
    try:
        return httpx.get(f"{cluster.url}/health").status_code == 200
    except httpx.TransportError:
        return False

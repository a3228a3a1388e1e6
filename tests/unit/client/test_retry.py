"""What is sent again, what is not, and for how long."""

from __future__ import annotations

import time

import pytest

from corral import errors
from corral.client import AsyncClient, Client, Patience
from tests.acceptance.cluster import free_port
from tests.unit.client.stand_in import DROP, StandIn, fault, submitted, task_out

BUSY = fault("store_unavailable", 503, "down", Retry_After="0")
SHORT = Patience(total_s=0.3, first_s=0.3)


def test_read_is_sent_again_after_a_lost_answer(
    manager: StandIn, client: Client
) -> None:
    manager.on("GET /tasks/t1", DROP, DROP, task_out())
    assert client.get_task("t1").status == "completed"
    assert len(manager.seen) == 3


def test_read_is_sent_again_when_the_manager_asks_for_it(
    manager: StandIn, client: Client
) -> None:
    manager.on("GET /tasks/t1", BUSY, task_out())
    assert client.get_task("t1").status == "completed"


def test_unavailable_without_retry_after_is_raised_at_once(
    manager: StandIn, client: Client
) -> None:
    manager.on("GET /tasks/t1", fault("engine_unavailable", 503))
    with pytest.raises(errors.EngineUnavailable):
        client.get_task("t1")
    assert len(manager.seen) == 1


def test_submit_makes_up_a_key_and_repeats_it_when_sent_again(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks", DROP, BUSY, submitted())
    client.submit("echo", {"message": "hi"})
    keys = {seen.json["idempotency_key"] for seen in manager.seen}
    assert len(manager.seen) == 3
    assert len(keys) == 1
    client.submit("echo", {"message": "hi"})
    assert manager.seen[-1].json["idempotency_key"] not in keys


def test_submit_keeps_the_key_or_id_it_was_given(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks", submitted())
    client.submit("echo", idempotency_key="mine")
    client.submit("echo", task_id="t9")
    assert manager.seen[0].json["idempotency_key"] == "mine"
    assert "idempotency_key" not in manager.seen[1].json


@pytest.mark.parametrize("answer", [DROP, BUSY])
def test_call_that_may_have_happened_is_not_sent_again(
    manager: StandIn, client: Client, answer: object
) -> None:
    manager.on("POST /workers", answer, {"workers": []})
    with pytest.raises(errors.Unavailable):
        client.launch_worker("corral.EchoWorker")
    assert len(manager.seen) == 1


@pytest.mark.parametrize(
    "answer",
    [
        fault("not_leader", 503, Retry_After="0"),
        fault("rate_limited", 429, Retry_After="0"),
    ],
)
def test_call_that_surely_did_not_happen_is_sent_again(
    manager: StandIn, client: Client, answer: object
) -> None:
    manager.on("POST /workers", answer, {"workers": []})
    assert client.launch_worker("corral.EchoWorker") == []


def test_long_retry_after_is_not_waited_for(manager: StandIn) -> None:
    manager.on("GET /nodes", fault("rate_limited", 429, Retry_After="3600"))
    started = time.monotonic()
    with (
        Client(manager.url, "", patience=SHORT) as client,
        pytest.raises(errors.RateLimited),
    ):
        client.nodes()
    assert time.monotonic() - started < 30


def test_trying_again_ends_in_time(manager: StandIn) -> None:
    manager.on("GET /nodes", BUSY)
    started = time.monotonic()
    with (
        Client(manager.url, "", patience=Patience(1.0, 1.0)) as client,
        pytest.raises(errors.StoreUnavailable),
    ):
        client.nodes()
    assert time.monotonic() - started < 30
    assert len(manager.seen) > 1


def test_nothing_there_is_told_in_one_line_with_the_address_and_the_fix() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with (
        Client(url, "", patience=SHORT) as client,
        pytest.raises(errors.Unreachable) as caught,
    ):
        client.health()
    assert caught.value.message == (
        f"cannot reach Corral at {url}: start it with 'corral up' "
        "or set CORRAL_MANAGER_URL"
    )
    assert caught.value.status is None


def test_first_contact_may_have_less_patience_than_what_follows(
    manager: StandIn,
) -> None:
    patience = Patience(total_s=5.0, first_s=0.0)
    with Client(manager.url, "", patience=patience) as client:
        manager.on("GET /nodes", DROP, {"nodes": []})
        with pytest.raises(errors.Unreachable):
            client.nodes()
        assert client.nodes() == []
        manager.on("GET /nodes", DROP, DROP, {"nodes": []})
        assert client.nodes() == []


async def test_async_client_follows_the_same_rules(manager: StandIn) -> None:
    manager.on("POST /tasks", DROP, BUSY, submitted())
    manager.on("POST /workers", DROP)
    async with AsyncClient(manager.url, "", patience=Patience(5.0, 5.0)) as client:
        await client.submit("echo")
        with pytest.raises(errors.Unreachable):
            await client.launch_worker("corral.EchoWorker")
    assert len(manager.asked("POST /tasks")) == 3
    assert len(manager.asked("POST /workers")) == 1

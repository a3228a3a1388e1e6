"""The manager's error answers come back as the exceptions it raised."""

from __future__ import annotations

import json

import pytest

from corral import errors
from corral.client import Client
from corral.client.http.endpoint import Response
from corral.client.http.errors import as_error
from tests.unit.client.stand_in import Answer, StandIn, fault, task_out


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("invalid_json", 400, errors.InvalidJson),
        ("bad_request", 400, errors.BadRequest),
        ("unauthenticated", 401, errors.Unauthenticated),
        ("forbidden", 403, errors.Forbidden),
        ("task_not_found", 404, errors.TaskNotFound),
        ("worker_not_found", 404, errors.WorkerNotFound),
        ("node_not_found", 404, errors.NodeNotFound),
        ("not_found", 404, errors.NotFound),
        ("conflict", 409, errors.Conflict),
        ("too_large", 413, errors.TooLarge),
        ("invalid_field", 422, errors.InvalidField),
        ("unknown_task_type", 422, errors.UnknownTaskType),
        ("rate_limited", 429, errors.RateLimited),
        ("store_unavailable", 503, errors.StoreUnavailable),
        ("engine_unavailable", 503, errors.EngineUnavailable),
        ("not_leader", 503, errors.NotLeader),
    ],
)
def test_code_picks_the_class_and_facts_travel(
    manager: StandIn,
    client: Client,
    code: str,
    status: int,
    kind: type[errors.CorralError],
) -> None:
    manager.on("GET /tasks/t1", fault(code, status, "it is so"))
    with pytest.raises(errors.CorralError) as caught:
        client.get_task("t1")
    error = caught.value
    assert type(error) is kind
    assert error.message == "it is so"
    assert (error.status, error.request_id) == (status, "req-1")
    assert error.field == "x"


def test_http_status_is_told_apart_from_a_detail_called_status() -> None:
    body = b'{"error":{"code":"conflict","message":"m","details":{"status":"failed"}}}'
    error = as_error(Response(409, body, {"x-request-id": "r7"}), "http://x")
    assert (error.status, error.request_id) == (409, "r7")
    assert error.details["status"] == "failed"


def test_unknown_code_of_a_newer_manager_is_still_a_corral_error() -> None:
    body = b'{"error":{"code":"brand_new","message":"m"}}'
    error = as_error(Response(418, body), "http://x")
    assert type(error) is errors.CorralError
    assert error.message == "m"


def test_answer_of_another_program_says_so(manager: StandIn, client: Client) -> None:
    manager.on("GET /nodes", Answer(b"<html>bad gateway</html>", 502))
    with pytest.raises(errors.Unavailable, match="not as Corral does"):
        client.nodes()
    manager.on("GET /nodes", Answer(b"<html>hello</html>", 200))
    with pytest.raises(errors.Unavailable, match="CORRAL_MANAGER_URL"):
        client.nodes()


@pytest.mark.parametrize("value", [b'"\\ud800"', b"1e400000", b"NaN"])
def test_result_only_python_can_read_hinders_no_other(
    manager: StandIn, client: Client, value: bytes
) -> None:
    good = json.dumps(task_out("a")).encode()
    odd = good.replace(b'{"echoed": "hi"}', value).replace(b'"a"', b'"b"')
    body = b'{"tasks":[' + good + b"," + odd + b'],"pending":[],"unknown":[]}'
    manager.on("POST /tasks/collect", Answer(body))
    first, second = client.wait_many(["a", "b"])
    assert first.result == {"echoed": "hi"}
    assert second.task_id == "b"


def test_names_cannot_leave_their_place_in_the_path(
    manager: StandIn, client: Client
) -> None:
    with pytest.raises(errors.NotFound):
        client.get_task("../nodes?x=1")
    assert manager.seen[0].path == "/tasks/..%2Fnodes%3Fx%3D1"
    with pytest.raises(errors.NotFound):
        client.get_task("\udcff")
    assert manager.seen[1].path == "/tasks/%3F"

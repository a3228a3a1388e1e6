"""Payloads and results are held to the schemas of their job type."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel

from corral.core.tasks.job_type import JobType
from corral.errors import InvalidField
from corral.manager.tasks.payload_schema import check_payload, check_schema
from tests.unit.api.world import World, fault


class Size(BaseModel):
    width: int
    height: int


class Resize(BaseModel):
    size: Size
    tags: list[str] = []


SCHEMA = Resize.model_json_schema()
GOOD = {"size": {"width": 1, "height": 2}}


def job_type(schema: Any = SCHEMA) -> JobType:
    return JobType("resize", input_schema=json.dumps(schema))


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "parameters.size"),
        ({"size": {"width": 1}}, "parameters.size.height"),
        ({"size": {"width": "a", "height": 1}}, "parameters.size.width"),
        ({**GOOD, "tags": ["a", 2]}, "parameters.tags[1]"),
        ([], "parameters"),
        (None, "parameters"),
    ],
)
def test_a_wrong_payload_is_refused_by_the_path_of_its_field(
    payload: Any, field: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        check_payload(job_type(), json.dumps(payload))
    assert caught.value.field == field
    assert field in caught.value.message


def test_a_payload_that_fits_passes() -> None:
    check_payload(job_type(), json.dumps(GOOD))


def test_a_payload_too_deep_to_check_is_refused_and_not_a_crash() -> None:
    deep = {"type": "array", "items": {"$ref": "#"}}
    with pytest.raises(InvalidField, match="cannot be checked"):
        check_payload(job_type(deep), "[" * 900 + "]" * 900)


def test_a_schema_that_leads_to_itself_for_ever_is_no_crash() -> None:
    with pytest.raises(InvalidField, match="cannot be checked"):
        check_payload(job_type({"$ref": "#"}), "{}")


def test_a_huge_wrong_payload_gets_a_short_complaint() -> None:
    many = {"size": "x" * 100_000, "tags": [0] * 10_000}
    with pytest.raises(InvalidField) as caught:
        check_payload(job_type(), json.dumps(many))
    assert len(caught.value.message) < 700


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": 1},
        {"properties": {"a": {"pattern": "("}}},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/$defs/nowhere"},
        {"properties": {"a": {"items": {"$ref": "other.json"}}}},
        {"$dynamicRef": "https://example.com/x"},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        check_schema(json.dumps(schema), "input_schema")
    assert caught.value.field == "input_schema"


def test_a_schema_may_refer_to_its_own_parts() -> None:
    parts = {"$defs": {"a": {"$id": "a", "type": "string"}}, "$ref": "#/$defs/a"}
    assert check_schema(json.dumps(parts), "input_schema")


def test_a_schema_nested_without_end_is_refused() -> None:
    text = '{"items":' * 200 + "{}" + "}" * 200
    with pytest.raises(InvalidField):
        check_schema(text, "input_schema")


def test_types_without_a_schema_never_load_the_library() -> None:
    code = (
        "import sys\n"
        "from corral.core.tasks.job_type import JobType\n"
        "from corral.manager.app import Manager\n"
        "from corral.manager.tasks.payload_schema import check_payload\n"
        "check_payload(JobType('a'), 'not even JSON')\n"
        "print('jsonschema' in sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout == "False\n"


async def test_a_submit_is_refused_with_the_field_and_a_batch_row_alone(
    world: World,
) -> None:
    await world.operate.tell("/job-types", {"name": "resize", "input_schema": SCHEMA})
    wrong = {"task_type": "resize", "parameters": {"size": {"width": 1}}}
    error = fault(await world.submit.post("/tasks", wrong), 422, "invalid_field")
    assert error["details"]["field"] == "parameters.size.height"
    right = {"task_type": "resize", "parameters": GOOD}
    told = await world.submit.tell("/tasks/batch", {"tasks": [wrong, right]})
    assert (told["accepted"], told["refused"]) == (1, 1)
    assert told["task_ids"][0] is None


async def test_a_wrong_result_fails_the_task_for_good(world: World) -> None:
    worker = await world.worker("resize")
    body = {"name": "resize", "output_schema": SCHEMA}
    await world.operate.tell("/job-types", body)
    task_id = await world.submit.submit("resize", retries=5)
    await worker.finish(worker.take_one(), {"size": {"width": 1, "height": "x"}})
    task = await world.read.task(task_id)
    assert (task["status"], task["tries"]) == ("failed", 1)
    assert task["error"]["kind"] == "bad_result"
    assert "result.size.height" in task["error"]["message"]
    assert task["result"] is None
    task_id = await world.submit.submit("resize")
    await worker.finish(worker.take_one(), GOOD)
    assert (await world.read.task(task_id))["result"] == GOOD


async def test_a_schema_is_checked_when_it_is_registered(world: World) -> None:
    body = {"name": "resize", "output_schema": {"type": "nonsense"}}
    error = fault(await world.operate.post("/job-types", body), 422, "invalid_field")
    assert error["details"]["field"] == "output_schema"
    assert (await world.read.ask("/job-types"))["job_types"] == []

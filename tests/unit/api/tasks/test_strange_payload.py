"""Payloads that JSON readers stumble over: refused or kept as they are, and never to
the harm of others in the same request."""

from __future__ import annotations

import json

import pytest

from tests.unit.api.world import World, fault, said


@pytest.fixture(autouse=True)
async def echo(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})


CULPRITS = {
    "NUL": rb'"\u0000"',
    "lone surrogate": rb'"\ud800"',
    "other half": rb'"\udc00x"',
    "NaN": b"NaN",
    "infinity": b"[-Infinity]",
    "1e400000": b"1e400000",
    "an endless integer": b"9" * 5000,
    "bytes that are no text": b'"\xff\xfe"',
    "deep nesting": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "two of them": rb'["\ud800", NaN]',
    "a trailing comma": b"[1,]",
}


@pytest.mark.parametrize("name", CULPRITS)
async def test_a_strange_payload_among_100_good_ones_harms_only_itself(
    world: World, name: str
) -> None:
    worker = await world.worker("echo", concurrency=200)
    good = [
        b'{"task_type":"echo","parameters":{"n":1.50,"at":%d}}' % n for n in range(100)
    ]
    bad = b'{"task_type":"echo","parameters":%s}' % CULPRITS[name]
    rows = [*good[:50], bad, *good[50:]]
    answer = await world.submit.post(
        "/tasks/batch", b'{"tasks":[' + b",".join(rows) + b"]}"
    )
    told = said(answer)
    assert len(told["task_ids"]) == 101
    assert told["accepted"] >= 100
    assert [e["index"] for e in told["errors"]] in ([], [50])
    ids = [task_id for n, task_id in enumerate(told["task_ids"]) if n != 50]
    assert None not in ids
    items = {item["task_id"]: item for item in worker.take()}
    assert [items[t]["payload"] for t in ids] == [
        {"n": 1.5, "at": n} for n in range(100)
    ]


@pytest.mark.parametrize("name", CULPRITS)
async def test_a_strange_payload_alone_is_refused_or_comes_back_as_it_was(
    world: World, name: str
) -> None:
    bad = b'{"task_type":"echo","parameters":%s}' % CULPRITS[name]
    answer = await world.submit.post("/tasks", bad)
    if answer.status_code == 201:
        found = await world.read.get(f"/tasks/{answer.json()['task_id']}")
        assert b'"parameters":' + CULPRITS[name] in found.content
    else:
        fault(answer, 400, "invalid_json")


async def test_good_tasks_beside_a_strange_one_keep_their_text_to_the_letter(
    world: World,
) -> None:
    text = (
        b'{"big":123456789012345678901234567890,"f":1.10,"e":1E2,"s":"\\u00e4 ] } ,"}'
    )
    row = b'{"task_type":"echo","parameters":%s}'
    body = b' {"tasks" : [ %s ,\n%s ] } ' % (row % text, row % b"NaN")
    told = said(await world.submit.post("/tasks/batch", body))
    found = await world.read.get(f"/tasks/{told['task_ids'][0]}")
    assert b'"parameters":' + text in found.content


@pytest.mark.parametrize(
    "body",
    [
        b'{"tasks":[{"task_type":"echo","parameters":NaN}',
        b'{"tasks":[NaN]}x',
        b'{"tasks":NaN}',
        b'{"tasks":[NaN],"more":1}',
        b'{"tasks":[NaN,,1]}',
        b'{"tasks":[NaN]]}',
        b'{"tasks":[{NaN]}}',
        b'{"tasks":["\\ud800]}',
        b'{"tasks":[NaN,]}',
        b'{"tasks":[' + b"[" * 300_000,
    ],
)
async def test_a_batch_that_is_broken_as_a_whole_is_refused_as_a_whole(
    world: World, body: bytes
) -> None:
    fault(await world.submit.post("/tasks/batch", body), 400, "invalid_json")


async def test_text_of_any_language_travels_unharmed(world: World) -> None:
    worker = await world.worker("echo")
    words = {"text": "grüße 你好 🦄 \u202e", "key ä": [None, True, -0.0, 1e-9]}
    task_id = await world.submit.submit("echo", parameters=words, labels={"a": "ä 🦄"})
    item = worker.take_one()
    assert item["payload"] == words
    await worker.finish(item, words)
    task = await world.read.task(task_id)
    assert (task["parameters"], task["result"]) == (words, words)
    assert json.loads(json.dumps(task["labels"])) == {"a": "ä 🦄"}

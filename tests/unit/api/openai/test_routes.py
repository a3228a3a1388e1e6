"""/v1: shapes, errors, streams and hang-ups, as clients of the OpenAI API see them."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from dataclasses import replace
from typing import Any

import httpx
import pytest

from corral.manager.access.rate_limit import RateLimits
from tests.unit.api.hanging import Listener
from tests.unit.api.world import (
    CONFIG,
    FakeWorker,
    World,
    fault,
    outcome,
    quiet,
    running,
    said,
)

Json = dict[str, Any]
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


async def serving(world: World, *models: str) -> FakeWorker:
    worker = await world.worker("generate", "embed")
    sizes = dict.fromkeys(models or ("m",), 10.0)
    said(await worker.report(models={"number": 1, "held": [], "sizes": sizes}))
    return worker


async def asked(world: World, path: str, **body: Any) -> asyncio.Task[httpx.Response]:
    """A request that waits for its tasks."""
    call = asyncio.create_task(world.submit.post(path, {"model": "m", **body}))
    await quiet()
    return call


def answered(text: str, reason: str = "stop") -> Json:
    return {"text": text, "finish_reason": reason, "prompt_tokens": 5, "tokens": 3}


def piece(item: Json, first: int, *texts: str) -> Json:
    values = [{"text": text} for text in texts]
    return {**who(item), "first": first, "values": values}


def who(item: Json) -> Json:
    return {"task_id": item["task_id"], "attempt": item["attempt"]}


def listen(world: World, path: str = CHAT, **body: Any) -> Listener:
    told: Json = {"model": "m", "stream": True, **body}
    if path == CHAT:
        told.setdefault("messages", HELLO)
    content = json.dumps(told).encode()
    return Listener(world.app, path, world.submit, method="POST", content=content)


def chunks(body: bytes) -> list[Any]:
    rows = [row for row in body.decode().split("\n\n") if row.startswith("data: ")]
    told = [row.removeprefix("data: ") for row in rows]
    return [row if row == "[DONE]" else json.loads(row) for row in told]


def words(body: bytes) -> list[str]:
    """The pieces of text in a stream of a chat."""
    found = [c["choices"][0] for c in chunks(body) if c != "[DONE]" and c["choices"]]
    return [choice["delta"].get("content", "") for choice in found]


async def test_models_are_those_that_workers_can_name(world: World) -> None:
    await serving(world, "b", "a")
    told = await world.read.ask("/v1/models")
    assert told["object"] == "list"
    assert [row["id"] for row in told["data"]] == ["a", "b"]
    assert {row["object"] for row in told["data"]} == {"model"}
    assert (await world.read.ask("/v1/models/a"))["id"] == "a"
    error = fault(await world.read.get("/v1/models/c"), 404, "model_not_found")
    assert error["param"] == "model"


async def test_a_chat_becomes_a_task_and_its_answer_has_the_usual_shape(
    world: World,
) -> None:
    worker = await serving(world)
    parts = [{"type": "text", "text": "be "}, {"type": "text", "text": "kind"}]
    messages = [{"role": "system", "content": parts}, *HELLO]
    call = await asked(
        world,
        CHAT,
        messages=messages,
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        stop="END",
        seed=-1,
        user="somebody",
    )
    item = worker.take_one()
    assert (item["job_type"], item["model"]) == ("generate", "m")
    assert item["payload"] == {
        "messages": [{"role": "system", "content": "be kind"}, *HELLO],
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": "END",
        "seed": (1 << 63) - 1,
    }
    await worker.finish(item, answered("Hi!", "length"))
    told = said(await call)
    assert told == {
        "id": f"chatcmpl-{item['task_id']}",
        "object": "chat.completion",
        "created": told["created"],
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi!", "refusal": None},
                "finish_reason": "length",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
    }
    assert await world.read.status(item["task_id"]) == "completed"


async def test_every_prompt_and_choice_is_a_task_of_its_own(world: World) -> None:
    worker = await serving(world)
    call = await asked(world, "/v1/completions", prompt=["a", "b"], n=2, seed=1)
    seen = []
    for _ in range(4):
        item = worker.take_one()
        seen.append((item["payload"]["prompt"], item["payload"]["seed"]))
        await worker.finish(item, answered(f"{item['payload']['prompt']}!"))
    assert sorted(seen) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    told = said(await call)
    assert told["object"] == "text_completion"
    assert [c["text"] for c in told["choices"]] == ["a!", "a!", "b!", "b!"]
    assert [c["index"] for c in told["choices"]] == [0, 1, 2, 3]
    assert told["usage"]["total_tokens"] == 4 * 8


@pytest.mark.parametrize("form", ["float", "base64"])
async def test_embeddings_come_as_numbers_or_packed(world: World, form: str) -> None:
    worker = await serving(world)
    texts = ["one", "two"]
    call = await asked(world, "/v1/embeddings", input=texts, encoding_format=form)
    item = worker.take_one()
    assert (item["job_type"], item["payload"]) == ("embed", {"text": texts})
    vectors = [[0.5, -1.0], [0.25, 2.0]]
    await worker.finish(item, {"embeddings": vectors, "dimensions": 2, "tokens": 4})
    told = said(await call)
    found = [row["embedding"] for row in told["data"]]
    if form == "base64":
        found = [list(struct.unpack("<2f", base64.b64decode(row))) for row in found]
    assert found == vectors
    assert told["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


async def test_a_stream_tells_words_as_they_come_then_why_it_ended(
    world: World,
) -> None:
    worker = await serving(world)
    listener = listen(world, stream_options={"include_usage": True})
    await quiet()
    item = worker.take_one()
    assert item["payload"]["stream"] is True
    assert listener.status == 0, "the status waits for the first word"
    await worker.report(output=[piece(item, 1, "He", "llo")])
    assert listener.status == 200
    assert words(listener.body) == ["", "Hello"]
    await worker.report(output=[piece(item, 3, " you")])
    assert words(listener.body) == ["", "Hello", " you"]
    await worker.finish(item, answered("Hello you."))
    await listener.ended()
    told = chunks(listener.body)
    assert told[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {c["object"] for c in told[:-1]} == {"chat.completion.chunk"}
    assert {c["id"] for c in told[:-1]} == {f"chatcmpl-{item['task_id']}"}
    assert "".join(words(listener.body)) == "Hello you."
    end, usage, done = told[-3:]
    assert end["choices"][0]["finish_reason"] == "stop"
    assert end["usage"] is None
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 8)
    assert done == "[DONE]"


async def test_a_stream_of_plain_text_and_of_a_worker_that_emits_nothing(
    world: World,
) -> None:
    worker = await serving(world)
    listener = listen(world, "/v1/completions", prompt="Once")
    await quiet()
    await worker.finish(worker.take_one(), answered(" upon"))
    await listener.ended()
    *told, done = chunks(listener.body)
    assert done == "[DONE]"
    assert "".join(c["choices"][0]["text"] for c in told) == " upon"
    assert told[-1]["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in told[-1]


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_lost_attempt_does_not_show_in_the_text(
    world: World, goes_on: bool
) -> None:
    worker = await serving(world)
    listener = listen(world)
    await quiet()
    item = worker.take_one()
    await worker.report(output=[piece(item, 1, "He", "ll")])
    error = {"kind": "worker_died", "message": "killed"}
    await worker.report(outcomes=[outcome(item, kind="lost", error=error)])
    await world.step(2, worker.node)
    item = worker.take_one()
    assert item["emitted"] == [{"text": "He"}, {"text": "ll"}]
    more = piece(item, 3, "o", "!") if goes_on else piece(item, 1, "Hel", "lo!")
    await worker.report(output=[more])
    await worker.finish(item, answered("Hello!"))
    await listener.ended()
    assert "".join(words(listener.body)) == "Hello!"
    assert chunks(listener.body)[-1] == "[DONE]"


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_who_hangs_up_ends_the_work(world: World, is_streamed: bool) -> None:
    worker = await serving(world)
    listener = listen(world, stream=is_streamed)
    await quiet()
    item = worker.take_one()
    if is_streamed:
        await worker.report(output=[piece(item, 1, "He")])
    await listener.hang_up()
    assert await world.read.status(item["task_id"]) == "cancelled"
    assert (await worker.report()).json()["drop"] == [[item["task_id"], 1]]
    assert len(world.manager.ctx.cluster.tasks) == 0


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("bad_input", 400, "invalid_field"),
        ("unsupported_type", 400, "invalid_field"),
        ("unknown_model", 404, "model_not_found"),
        ("corrupt_model", 502, "task_failed"),
        ("exception", 502, "task_failed"),
    ],
)
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_what_a_worker_refuses_has_its_status(
    world: World, kind: str, status: int, code: str, is_streamed: bool
) -> None:
    worker = await serving(world)
    call = await asked(world, CHAT, messages=HELLO, stream=is_streamed)
    item = worker.take_one()
    error = {"kind": kind, "message": "prompt: it has 9000 tokens"}
    await worker.report(outcomes=[outcome(item, kind="failed", error=error)])
    told = fault(await call, status, code)
    assert told["message"] == "prompt: it has 9000 tokens"
    assert told["type"] == ("server_error" if status > 500 else "invalid_request_error")


async def test_what_fails_after_the_first_word_is_told_in_the_stream(
    world: World,
) -> None:
    worker = await serving(world)
    listener = listen(world)
    await quiet()
    item = worker.take_one()
    await worker.report(output=[piece(item, 1, "He")])
    await worker.fail(item, "it broke")
    await listener.ended()
    last = chunks(listener.body)[-1]
    assert last["error"]["message"] == "it broke"
    assert last["error"]["type"] == "server_error"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": HELLO, "temperature": 3}, "temperature"),
        (CHAT, {"messages": HELLO, "temperature": "warm"}, "temperature"),
        (CHAT, {"messages": HELLO, "top_p": 0}, "top_p"),
        (CHAT, {"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        (CHAT, {"messages": HELLO, "max_completion_tokens": -1}, None),
        (CHAT, {"messages": HELLO, "n": 0}, "n"),
        (CHAT, {"messages": HELLO, "n": 2, "stream": True}, "n"),
        (CHAT, {"messages": HELLO, "tools": [{"type": "function"}]}, "tools"),
        (CHAT, {"messages": HELLO, "logprobs": True}, "logprobs"),
        (CHAT, {"messages": HELLO, "presence_penalty": 1}, "presence_penalty"),
        (CHAT, {"messages": HELLO, "response_format": {"type": "json_object"}}, None),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {}, "messages"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            None,
        ),
        ("/v1/completions", {"prompt": [1, 2]}, "prompt"),
        ("/v1/completions", {"prompt": "a", "echo": True}, "echo"),
        ("/v1/completions", {"prompt": ["a"] * 40, "n": 2}, "n"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": [[1, 2]]}, "input"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "int"}, "encoding_format"),
    ],
)
async def test_what_cannot_be_asked_is_refused_before_any_task(
    world: World, path: str, body: Json, param: str | None
) -> None:
    worker = await serving(world)
    answer = await world.submit.post(path, {"model": "m", **body})
    error = fault(answer, 400, "invalid_field")
    assert error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param
    assert worker.take() == []


async def test_unknown_models_keys_and_limits_have_the_usual_errors(
    world: World,
) -> None:
    await serving(world)
    body = {"model": "m2", "messages": HELLO}
    error = fault(await world.submit.post(CHAT, body), 404, "model_not_found")
    assert error["param"] == "model"
    assert "/v1/models" in error["message"]
    answer = await world.nobody.post(CHAT, body)
    fault(answer, 401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    fault(await world.read.post(CHAT, body), 403, "forbidden")
    fault(await world.submit.post(CHAT, b"{"), 400, "invalid_json")
    fault(await world.submit.get("/v1/nothing"), 404, "not_found")


async def test_a_model_that_no_worker_serves_this_way_is_not_found(
    world: World,
) -> None:
    worker = await world.worker("classify")
    await worker.report(models={"number": 1, "held": [], "sizes": {"m": 10.0}})
    answer = await world.submit.post(CHAT, {"model": "m", "messages": HELLO})
    assert "generate" in fault(answer, 404, "model_not_found")["message"]


async def test_too_many_requests_are_told_to_wait() -> None:
    config = replace(CONFIG, limits=RateLimits(per_s=0.001, burst=2))
    async with running(config) as world:
        answers = [await world.read.get("/v1/models") for _ in range(3)]
        assert [a.status_code for a in answers[:2]] == [200, 200]
        error = fault(answers[2], 429, "rate_limit_exceeded")
        assert error["type"] == "rate_limit_error"
        assert int(answers[2].headers["retry-after"]) >= 1

"""The official OpenAI client against a real cluster, with words as they are made."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from corral.client import AsyncClient
from tests.acceptance.cluster import Cluster, until
from tests.acceptance.storyteller import HOLD_AT, STORY

WORKER = "tests.acceptance.storyteller:StorytellerWorker=generate,embed"
WHOLE = "".join(STORY)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster.start(tmp_path_factory.mktemp("openai"), [WORKER])
    try:
        started.serving("generate")
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[openai.OpenAI]:
    key = (cluster.home / "admin.key").read_text().strip()
    with openai.OpenAI(
        base_url=f"{cluster.url}/v1", api_key=key, timeout=120, max_retries=0
    ) as made:
        until("the model is known", lambda: [m.id for m in made.models.list()])
        yield made


def ask(client: openai.OpenAI, text: str) -> openai.Stream[ChatCompletionChunk]:
    return client.chat.completions.create(
        model="story",
        messages=[{"role": "user", "content": text}],
        stream=True,
        stream_options={"include_usage": True},
    )


def text_in(chunk: ChatCompletionChunk) -> str:
    return (chunk.choices[0].delta.content or "") if chunk.choices else ""


def test_models_chats_completions_and_embeddings(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["story"]
    assert client.models.retrieve("story").owned_by == "corral"
    chat = client.chat.completions.create(
        model="story", messages=[{"role": "user", "content": "tell"}]
    )
    assert chat.choices[0].message.content == WHOLE
    assert chat.choices[0].finish_reason == "stop"
    assert chat.usage is not None
    assert chat.usage.total_tokens == len("tell") + len(STORY)
    plain = client.completions.create(model="story", prompt="tell", stream=True)
    assert "".join(chunk.choices[0].text for chunk in plain) == WHOLE
    found = client.embeddings.create(model="story", input=["a", "bcd"])
    assert [row.embedding for row in found.data] == [[1.0, 0.5], [3.0, 0.5]]


def test_a_streamed_chat_comes_in_pieces_with_its_usage(client: openai.OpenAI) -> None:
    with ask(client, "tell") as stream:
        told = list(stream)
    assert "".join(map(text_in, told)) == WHOLE
    assert told[-1].usage is not None
    assert told[-1].usage.completion_tokens == len(STORY)
    reasons = [chunk.choices[0].finish_reason for chunk in told if chunk.choices]
    assert reasons[-1] == "stop"


def test_errors_are_those_that_the_client_knows(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.completions.create(model="nobody", prompt="x")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="story", prompt="x", temperature=9)
    with (
        openai.OpenAI(
            base_url=f"{cluster.url}/v1", api_key="corral_a_b", max_retries=0
        ) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_a_runner_killed_in_the_middle_leaves_the_text_whole(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    seen: list[str] = []
    is_killed = False
    with ask(client, "hold") as stream:
        for chunk in stream:
            seen.append(text_in(chunk))
            if not is_killed and "".join(seen) == "".join(STORY[:HOLD_AT]):
                (supervisor,) = cluster.worker_pids("generate")
                (runner,) = cluster.runner_pids(supervisor)
                os.kill(runner, signal.SIGKILL)
                is_killed = True
    assert is_killed
    assert "".join(seen) == WHOLE
    newest = next(iter(cluster.client.list_tasks(status="completed")))
    task = cluster.client.get_task(newest.task_id)
    assert (task.attempt, task.result["begun"]) == (2, HOLD_AT)


def test_who_hangs_up_in_the_middle_ends_the_work(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    with ask(client, "hold") as stream:
        next(iter(stream))
        (live,) = cluster.client.list_tasks(status="queued,running")
    until(
        "the task is cancelled",
        lambda: cluster.client.get_task(live.task_id).status == "cancelled",
    )
    # And its worker is free for the next.
    with ask(client, "tell") as stream:
        assert "".join(map(text_in, stream)) == WHOLE


def test_the_command_line_prints_what_a_task_emits(cluster: Cluster) -> None:
    asked = ("run", "generate", '{"prompt": "tell"}', "--model", "story", "--stream")
    told = cluster.corral(*asked)
    assert (told.code, told.out) == (0, f"{WHOLE}\n")
    refused = cluster.corral(*asked, "--json")
    assert refused.code == 2
    assert "--stream" in refused.err


async def test_our_own_clients_follow_what_a_task_emits(cluster: Cluster) -> None:
    asked = {"prompt": "tell"}
    task = cluster.client.submit("generate", asked, model_name="story")
    pieces = list(cluster.client.stream(task))
    assert [piece.number for piece in pieces] == list(range(1, len(STORY) + 1))
    assert "".join(piece.value["text"] for piece in pieces) == WHOLE
    async with AsyncClient(cluster.url, home=cluster.home) as other:
        again = [piece async for piece in other.stream(task)]
    assert again == pieces
    assert cluster.client.result(task, 60)["text"] == WHOLE

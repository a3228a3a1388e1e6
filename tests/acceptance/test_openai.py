"""The official OpenAI client against a real cluster, with words as they are made."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from corral.client import AsyncClient
from tests.acceptance.cluster import Cluster, until
from tests.acceptance.openai_face import speaking, text_in
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
    with speaking(cluster, 1) as made:
        yield made


def ask(client: openai.OpenAI, text: str) -> openai.Stream[ChatCompletionChunk]:
    return client.chat.completions.create(
        model="story",
        messages=[{"role": "user", "content": text}],
        stream=True,
        stream_options={"include_usage": True},
    )


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


def test_who_only_reads_a_stream_does_not_own_its_task(cluster: Cluster) -> None:
    task = cluster.client.submit("generate", {"prompt": "hold"}, model_name="story")
    key = (cluster.home / "admin.key").read_text().strip()
    path = f"{cluster.url}/tasks/{task.task_id}/stream"
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.stream("GET", path, headers=headers, timeout=60) as reader:
        assert any("word0" in line for line in reader.iter_lines())
    pieces = itertools.islice(cluster.client.stream(task), HOLD_AT)
    assert "".join(p.value["text"] for p in pieces) == "".join(STORY[:HOLD_AT])
    assert not cluster.client.get_task(task).is_terminal
    cluster.client.cancel(task)
    assert cluster.client.wait(task, 60).status == "cancelled"


def test_the_command_line_prints_what_a_task_emits(cluster: Cluster) -> None:
    asked = ("run", "generate", '{"prompt": "tell"}', "--model", "story", "--stream")
    told = cluster.corral(*asked)
    assert (told.code, told.out) == (0, f"{WHOLE}\n")
    refused = cluster.corral(*asked, "--json")
    assert refused.code == 2
    assert "--stream" in refused.err


def test_generate_and_chat_print_what_the_model_writes(cluster: Cluster) -> None:
    told = cluster.corral("generate", "story", "tell")
    assert (told.code, told.out) == (0, f"{WHOLE}\n")
    told = cluster.corral("generate", "story", "-", "--json", stdin="tell\n")
    answer = json.loads(told.out)
    assert (answer["text"], answer["tokens"]) == (WHOLE, len(STORY))
    assert cluster.client.get_task(answer["task_id"]).model_name == "story"
    told = cluster.corral("chat", "story", stdin="tell\nand again\n")
    assert (told.code, told.out) == (0, f"{WHOLE}\n{WHOLE}\n")
    newest = next(iter(cluster.client.list_tasks(status="completed")))
    sent = cluster.client.get_task(newest.task_id).parameters["messages"]
    assert [turn["role"] for turn in sent] == ["user", "assistant", "user"]


def test_embed_prints_a_vector_for_each_text(cluster: Cluster) -> None:
    told = cluster.corral("embed", "story", "a", "bcd")
    assert (told.code, told.out) == (0, "[1.0, 0.5]\n[3.0, 0.5]\n")


def test_generate_says_what_is_wrong(cluster: Cluster) -> None:
    told = cluster.corral("generate", "storm", "tell")
    assert (told.code, told.out) == (1, "")
    assert "did you mean 'story'?" in told.err
    told = cluster.corral("generate", "story", "too long")
    assert (told.code, told.out) == (1, "")
    assert told.err.endswith("failed: prompt: too long\n")


def test_an_interrupted_generate_stops_the_work(cluster: Cluster) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "corral", "generate", "story", "hold"],
        env={**cluster.environment, "CORRAL_MANAGER_URL": cluster.url},
        stdout=subprocess.PIPE,
        text=True,
    )
    begun = "".join(STORY[:HOLD_AT])
    assert process.stdout is not None
    assert process.stdout.read(len(begun)) == begun
    (live,) = cluster.client.list_tasks(status="queued,running")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    until(
        "the task is cancelled",
        lambda: cluster.client.get_task(live.task_id).status == "cancelled",
    )


def test_a_task_whose_worker_calls_its_failure_final_is_not_tried_again(
    cluster: Cluster,
) -> None:
    asked = {"prompt": "too long"}
    task = cluster.client.submit("generate", asked, model_name="story", retries=3)
    ended = cluster.client.wait(task, 60)
    assert (ended.status, ended.attempt, ended.dead_letter) == ("failed", 1, "failed")
    assert ended.error is not None
    assert ended.error.kind == "bad_input"


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

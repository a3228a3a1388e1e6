"""Models that external servers hold, behind the OpenAI face of a real cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import psutil
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.acceptance.cluster import ECHO, Cluster, until
from tests.acceptance.openai_face import speaking, text_in
from tests.unit.worker.server.conftest import SMALL, is_running, state_at
from tests.unit.worker.server.small_server import HOLD_AT, WORDS

WHOLE = "".join(f"w{n} " for n in range(WORDS))
HELD = "".join(f"w{n} " for n in range(HOLD_AT))
COMMAND = [
    sys.executable, "-S", str(SMALL), "--port", "{port}", "--served-model-name",
    "{name}",
]  # fmt: skip
PARAMS = {
    "command": COMMAND,
    "resume": "continue_final_message",
    "replicas": 2,
    "models": {"counter": {"size_mb": 100}},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster.start(tmp_path_factory.mktemp("servers"), [ECHO])
    try:
        launched = started.corral(
            "worker", "launch", "corral.worker.server:ServerWorker",
            "--job-type", "generate", "--job-type", "embed", "--concurrency", "8",
            "--params", json.dumps(PARAMS),
        )  # fmt: skip
        assert launched.code == 0, launched.err
        started.serving("generate")
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[openai.OpenAI]:
    with speaking(cluster, 1) as made:
        yield made


def servers(cluster: Cluster) -> dict[int, int]:
    """The ports of the servers that run now, by pid."""
    found = {}
    for supervisor in cluster.worker_pids("generate"):
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(supervisor).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    command = child.cmdline()
                    if command[2:3] == [str(SMALL)]:
                        found[child.pid] = int(command[4])
    return found


def ask(client: openai.OpenAI, text: str) -> openai.Stream[ChatCompletionChunk]:
    return client.chat.completions.create(
        model="counter", messages=[{"role": "user", "content": text}], stream=True
    )


def busy(port: int) -> int:
    count: int = state_at(port)["busy"]
    return count


def test_chats_completions_and_embeddings_go_to_the_servers(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    chat = client.chat.completions.create(
        model="counter", messages=[{"role": "user", "content": "count"}]
    )
    assert chat.choices[0].message.content == WHOLE
    assert chat.usage is not None
    assert chat.usage.completion_tokens == WORDS
    with ask(client, "count") as stream:
        assert "".join(map(text_in, stream)) == WHOLE
    short = client.completions.create(model="counter", prompt="count", max_tokens=3)
    assert short.choices[0].text == "w0 w1 w2 "
    assert short.choices[0].finish_reason == "length"
    found = client.embeddings.create(model="counter", input=["a", "bcd"])
    assert [row.embedding for row in found.data] == [pytest.approx([0.6, 0.8])] * 2
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.completions.create(model="counter", prompt="x " * 3000)
    assert len(servers(cluster)) == 2


def test_requests_are_at_all_servers_at_once_and_end_when_clients_hang_up(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    before = servers(cluster)
    ports = list(before.values())
    with ThreadPoolExecutor(6) as pool:
        streams = list(pool.map(lambda _: ask(client, "hold"), range(6)))
    until("three at each", lambda: [busy(port) for port in ports] == [3, 3])
    for stream in streams:
        stream.close()
    until("none at either", lambda: [busy(port) for port in ports] == [0, 0])
    # The servers are those that were there, and answer.
    assert servers(cluster) == before
    with ask(client, "count") as stream:
        assert "".join(map(text_in, stream)) == WHOLE


def test_a_server_killed_in_the_middle_leaves_the_stream_whole_and_comes_back(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    before, killed = servers(cluster), 0
    seen: list[str] = []
    with ask(client, "hold") as stream:
        for chunk in stream:
            seen.append(text_in(chunk))
            if not killed and "".join(seen) == HELD:
                (killed,) = [pid for pid, port in before.items() if busy(port)]
                os.kill(killed, signal.SIGKILL)
    assert "".join(seen) == WHOLE
    newest = next(iter(cluster.client.list_tasks(status="completed")))
    assert cluster.client.get_task(newest.task_id).attempt == 2
    after = until(
        "two are up again",
        lambda: len(now := servers(cluster)) == 2 and killed not in now and now,
    )
    assert set(before) - set(after) == {killed}
    until("both answer", lambda: all(map(is_answering, after.values())))


def is_answering(port: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(state_at(port))
    return False


def test_servers_end_with_their_runner_and_with_their_model(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    before = servers(cluster)
    (supervisor,) = cluster.worker_pids("generate")
    (runner,) = cluster.runner_pids(supervisor)
    os.kill(runner, signal.SIGKILL)
    until("they are gone", lambda: not any(map(is_running, before)))
    # Another runner starts servers of its own for who asks.
    with ask(client, "count") as stream:
        assert "".join(map(text_in, stream)) == WHOLE
    after = servers(cluster)
    assert len(after) == 2
    until(
        "they are told to end",
        lambda: cluster.corral("models", "unload", "counter").code == 0,
    )
    until("they are gone", lambda: not any(map(is_running, after)))

"""Tiny real models on a running cluster: asked in every way there is, swapped when
memory is short, killed and cancelled in the middle of a text.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import openai
import psutil
import pytest
from openai.types.chat import ChatCompletionChunk

from corral.wire.output import Piece
from corral.wire.tasks import TaskDetail
from tests.acceptance.cluster import ECHO, Cluster, until
from tests.acceptance.openai_face import speaking, text_in
from tests.acceptance.served import (
    cli,
    key,
    loads,
    python,
    rest,
    runner,
    server,
    sizes,
    taken_mb,
)
from tests.model_folder import Models, import_libraries

if TYPE_CHECKING:
    from tests.acceptance.plain_inference import Plain

SERVER = "corral.worker.inference:InferenceWorker"
SERVED = {
    "writer": "generate",
    "reader": "embed",
    "reader-graph": "embed",
    "judge": "classify",
    "judge-graph": "classify",
    "seer": "caption",
    "voice": "speak",
    "painter": "draw",
}
KINDS = sorted(set(SERVED.values()))
# Each of these takes 37 MB, all others together 2.
LARGE = ("poet", "scribe")
ROOM_MB = 64.0
TEXT = "the quick brown fox"
CHAT = "user: hello\nassistant:"
"""What the models' template makes of the message `hello`."""
LONG = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker for everything, with a card that has room for one large model."""
    place = tmp_path_factory.mktemp("folder")
    with ThreadPoolExecutor(1) as pool:
        # Both take long: side by side.
        making = pool.submit(_fill, place)
        running = Cluster.start(
            tmp_path_factory.mktemp("inference"),
            [ECHO],
            MODEL_CACHE_DIR=str(place),
            CORRAL_MODEL_CACHE_SIZE="20",
            CORRAL_SIMULATED_GPUS="1x100MB",
            OMP_NUM_THREADS="1",
        )
        try:
            making.result()
            running.client.launch_worker(
                SERVER,
                name="server",
                job_types=[*KINDS, "health_check"],
                # Where it is loaded, what would be more is refused.
                params={"device": "cpu", "memory_mb": ROOM_MB},
                gpus=1,
            )
            until("it is there", lambda: server(running).status == "online", 120)
            yield running
        finally:
            running.stop()


def _fill(place: Path) -> None:
    import_libraries()
    Models(place).have(*SERVED, *LARGE, "other-writer")


@pytest.fixture(scope="module")
def plain(cluster: Cluster) -> Plain:
    # Late: by now its libraries have been imported, and have warned of things.
    from tests.acceptance.plain_inference import Plain

    return Plain(Path(cluster.environment["MODEL_CACHE_DIR"]))


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[openai.OpenAI]:
    with speaking(cluster) as made:
        yield made


def write(cluster: Cluster, model: str, most: int = 4) -> Any:
    return python(cluster, "generate", model, {"prompt": TEXT, "max_tokens": most})


def chat(
    client: openai.OpenAI, model: str, most: int
) -> openai.Stream[ChatCompletionChunk]:
    return client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=most,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )


@pytest.mark.spec("A28", "B13", "B24", "B26", "C11")
@pytest.mark.parametrize("model", SERVED)
def test_every_kind_of_model_answers_on_every_face_as_it_does_without_us(
    cluster: Cluster, plain: Plain, model: str
) -> None:
    from tests.acceptance.plain_inference import ASKS

    kind = SERVED[model]
    for ask in (rest, python, cli):
        plain.check(kind, ask(cluster, kind, model, ASKS[kind]))
    assert model in server(cluster).loaded_models


def test_the_openai_client_gets_the_models_own_words_and_vectors(
    cluster: Cluster, client: openai.OpenAI, plain: Plain
) -> None:
    from tests.acceptance.plain_inference import TEXTS

    assert {model.id for model in client.models.list()} >= {*SERVED, *LARGE}
    assert client.models.retrieve("writer").id == "writer"
    said = plain.write("writer", CHAT, 30)
    told = client.chat.completions.create(
        model="writer",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=30,
        temperature=0,
    )
    assert told.choices[0].message.content == said.text
    assert told.usage is not None
    usage = (told.usage.prompt_tokens, told.usage.completion_tokens)
    assert usage == (said.prompt_tokens, said.tokens)
    whole = plain.write("writer", TEXT, 30).text
    done = client.completions.create(
        model="writer", prompt=TEXT, max_tokens=30, temperature=0
    )
    assert done.choices[0].text == whole
    parts = client.completions.create(
        model="writer", prompt=TEXT, max_tokens=30, temperature=0, stream=True
    )
    assert "".join(part.choices[0].text for part in parts) == whole
    with pytest.raises(openai.BadRequestError, match="tokens, and model writer takes"):
        client.completions.create(model="writer", prompt="the " * 2000)
    with pytest.raises(openai.BadRequestError, match="made to generate, not to embed"):
        client.embeddings.create(model="writer", input="hello")
    for model in ("reader", "reader-graph"):
        found = client.embeddings.create(model=model, input=TEXTS)
        plain.check_embed({"embeddings": [row.embedding for row in found.data]})


def test_text_streams_to_every_face_as_it_is_written(
    cluster: Cluster, client: openai.OpenAI, plain: Plain
) -> None:
    whole = plain.write("writer", TEXT, 30)
    ask = {"prompt": TEXT, "max_tokens": 30, "stream": True}
    task = cluster.client.submit("generate", ask, model_name="writer")
    pieces = [piece.value for piece in cluster.client.stream(task)]
    assert len(pieces) > 5
    assert "".join(piece["text"] for piece in pieces) == whole.text
    assert sum(len(piece["tokens"]) for piece in pieces) == whole.tokens
    task = cluster.client.submit("generate", ask, model_name="writer")
    headers = {"Authorization": f"Bearer {key(cluster)}"}
    url = f"{cluster.url}/tasks/{task.task_id}/stream"
    events = httpx.get(url, headers=headers, timeout=120).text
    assert events.count('\ndata: {"text":') == len(pieces)
    words = ("run", "generate", json.dumps(ask), "--model", "writer", "--stream")
    told = cluster.corral(*words, timeout_s=120)
    assert (told.code, told.out) == (0, f"{whole.text}\n")
    with chat(client, "writer", 30) as stream:
        chunks = list(stream)
    # How many there are depends on how fast they are taken: what comes while a chunk
    # is written shares the next.
    assert "".join(map(text_in, chunks)) == plain.write("writer", CHAT, 30).text
    # Tokens are for attempts that go on from here, not for those who read.
    assert not any('"tokens"' in chunk.model_dump_json() for chunk in chunks)


def test_models_are_chained_by_what_one_task_says_to_the_next(
    cluster: Cluster, plain: Plain
) -> None:
    """The second task depends on the first, and is asked with its words."""
    from tests.acceptance.plain_inference import ASKS

    first = cluster.client.submit("caption", ASKS["caption"], model_name="seer")
    ask = {"prompt": "{{caption}}", "max_tokens": 4}
    after: dict[str, Any] = {"model_name": "writer", "depends_on": [first.task_id]}
    second = cluster.client.submit("generate", ask, **after)
    said = cluster.client.result(second, 120)["text"]
    caption = cluster.client.result(first, 120)["caption"]
    assert said == plain.write("writer", caption, 4).text
    wrong = cluster.client.submit("generate", {"prompt": "{{image}}"}, **after)
    assert "has no field image" in str(cluster.client.wait(wrong, timeout=120).error)


@pytest.mark.spec("C6", "C42")
def test_a_model_is_assigned_to_a_worker_and_tells_what_it_takes(
    cluster: Cluster,
) -> None:
    before = loads(cluster)
    (told,) = cluster.client.assign_model("other-writer", [server(cluster).worker_id])
    assert told.worker_id == server(cluster).worker_id
    until("it is there", lambda: "other-writer" in sizes(cluster))
    assert sizes(cluster)["other-writer"] == pytest.approx(0.15, abs=0.05)
    (worker,) = cluster.client.models()
    (model,) = [m for m in worker.models if m.name == "other-writer"]
    assert model.load_time is not None
    assert model.load_time > 0
    # And the first who asks for it need not wait for a load.
    assert write(cluster, "other-writer")["tokens"] == 4
    assert loads(cluster) == before + 1
    cluster.client.unload_model("other-writer")
    until("it is gone", lambda: "other-writer" not in sizes(cluster))


def test_a_model_that_was_sent_in_is_fetched_and_answers_as_before(
    cluster: Cluster, plain: Plain, tmp_path: Path
) -> None:
    place = Path(cluster.environment["MODEL_CACHE_DIR"])
    folder = shutil.copytree(place / "other-writer", tmp_path / "mine")
    told = cluster.corral("models", "add", "mine", str(folder), "--upload")
    assert told.code == 0, told
    text = plain.write("other-writer", TEXT, 4).text
    assert write(cluster, "mine")["text"] == text
    cluster.client.unload_model("mine")
    until("it is gone", lambda: "mine" not in sizes(cluster))


@pytest.mark.spec("B27")
def test_a_worker_tells_its_health_and_what_it_holds(cluster: Cluster) -> None:
    write(cluster, "writer")
    told = cluster.client.run("health_check", {}, timeout=120)
    assert (told["status"], told["device"], told["dtype"]) == (
        "healthy",
        "cpu",
        "float32",
    )
    assert "writer" in told["models"]
    info = server(cluster)
    assert info.status in ("online", "busy")
    assert info.last_heartbeat is not None
    assert "writer" in info.loaded_models


@pytest.mark.spec("C27", "C28")
def test_two_models_take_turns_where_there_is_memory_for_one(
    cluster: Cluster, plain: Plain
) -> None:
    texts = {model: plain.write(model, TEXT, 4).text for model in LARGE}
    before = loads(cluster)
    for number, model in enumerate(LARGE * 2, 1):
        assert write(cluster, model)["text"] == texts[model]
        # It came, the other one went, and so it is each time.
        held = only_large(cluster, model)
        assert 37 < sum(held.values()) <= ROOM_MB
        assert loads(cluster) == before + number
        until("the card shows it", lambda: 37 < taken_mb(cluster) <= ROOM_MB)
    ask = {"prompt": TEXT, "max_tokens": 4}
    tasks = [
        cluster.client.submit("generate", ask, model_name=model) for model in LARGE * 4
    ]
    while any(is_live(cluster, task.task_id) for task in tasks):
        assert taken_mb(cluster) <= ROOM_MB
        assert sum(sizes(cluster).values()) <= ROOM_MB
    answers = [cluster.client.result(task, 60)["text"] for task in tasks]
    assert answers == [texts[model] for model in LARGE * 4]
    assert loads(cluster) <= before + 4 + len(tasks)


def only_large(cluster: Cluster, model: str) -> dict[str, float]:
    """All that is held, once this is the one large model of it."""

    def look() -> dict[str, float]:
        held = sizes(cluster)
        return held if [name for name in held if name in LARGE] == [model] else {}

    found: dict[str, float] = until(f"{model} is held", look)
    return found


def is_live(cluster: Cluster, task_id: str) -> bool:
    return cluster.client.get_task(task_id).status in ("queued", "running")


@pytest.mark.spec("C55")
def test_who_hangs_up_stops_the_work_and_the_model_stays_warm(
    cluster: Cluster, client: openai.OpenAI, plain: Plain
) -> None:
    write(cluster, "poet")
    before, pid = loads(cluster), runner(cluster)
    with chat(client, "poet", 3900) as stream:
        next(part for part in stream if text_in(part))
        task_id = newest(cluster)
    until("the task is over", lambda: not is_live(cluster, task_id), 90)
    assert cluster.client.get_task(task_id).status == "cancelled"
    with chat(client, "poet", 20) as stream:
        text = "".join(map(text_in, stream))
    assert text == plain.write("poet", CHAT, 20).text
    assert (loads(cluster), runner(cluster)) == (before, pid)


def newest(cluster: Cluster) -> str:
    return next(iter(cluster.client.list_tasks(task_type="generate"))).task_id


@dataclass(frozen=True)
class Cut:
    """A chat that went on after a kill: as it was read, and as its task tells it."""

    chunks: list[ChatCompletionChunk]
    pieces: list[Piece]
    task: TaskDetail


def cut(cluster: Cluster, client: openai.OpenAI, pid: int) -> Cut:
    """Kill a process when it has written the first words of a long text."""
    chunks: list[ChatCompletionChunk] = []
    with chat(client, "poet", LONG) as stream:
        for chunk in stream:
            chunks.append(chunk)
            if text_in(chunk):
                break
        task_id = newest(cluster)
        pieces = cluster.client.stream(task_id)
        first = next(pieces)
        os.kill(pid, signal.SIGKILL)
        chunks += stream
    return Cut(chunks, [first, *pieces], cluster.client.get_task(task_id))


def test_a_runner_killed_in_the_middle_of_a_text_leaves_it_whole(
    cluster: Cluster, client: openai.OpenAI, plain: Plain
) -> None:
    whole = plain.write("poet", CHAT, LONG)
    assert whole.tokens == LONG
    write(cluster, "poet")
    dead = runner(cluster)
    told = cut(cluster, client, dead)
    if told.task.attempt == 1:
        # We were not looking for a while, and it had written all of it.
        dead = runner(cluster)
        told = cut(cluster, client, dead)
    assert "".join(map(text_in, told.chunks)) == whole.text
    usage = told.chunks[-1].usage
    assert usage is not None
    counts = (usage.prompt_tokens, usage.completion_tokens)
    assert counts == (whole.prompt_tokens, LONG)
    assert told.task.result["text"] == whole.text
    assert (told.task.attempt, told.task.attempts[0].outcome) == (2, "lost")
    # The second attempt went on where the first had come to.
    assert (told.pieces[0].attempt, told.pieces[-1].attempt) == (1, 2)
    numbers = [piece.number for piece in told.pieces]
    assert numbers == list(range(1, len(numbers) + 1))
    # Nothing of the dead one is left, and all that is held is the new one's.
    until("the dead one is gone", lambda: not psutil.pid_exists(dead))
    assert runner(cluster) != dead
    until("only this model is held", lambda: list(sizes(cluster)) == ["poet"])
    only_mb = pytest.approx(sizes(cluster)["poet"])
    until("the card has no more", lambda: taken_mb(cluster) == only_mb)

"""llama.cpp's own server as the runner of a model: `make show-llama`.

`LLAMA` is the folder that tools/llama.sh made.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import psutil
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.acceptance.cluster import ECHO, ROOT, Cluster, until
from tests.acceptance.openai_face import speaking, text_in
from tests.unit.worker.server.conftest import is_running

LLAMA = Path(os.environ.get("LLAMA", "build/llama")).absolute()
PROGRAM = LLAMA / "bin" / "llama-server"
LONG = 1500
pytestmark = pytest.mark.skipif(
    not PROGRAM.is_file(), reason="there is no llama-server: make show-llama"
)
PARAMS = {
    "server": "llama.cpp",
    "args": ["--threads", "1"],
    "models": {
        "tiny": {"size_mb": 100},
        "notes": {"type": "embed", "args": ["--pooling", "mean"]},
    },
}


def save_gguf(folder: Path) -> None:
    """A model of llama.cpp's own format, with random weights."""
    from tests.tiny_models import CHAT, bytes_tokenizer

    tokenizer = bytes_tokenizer()
    told = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    words = {
        "tokens": sorted(told["vocab"], key=told["vocab"].__getitem__),
        "merges": [m if isinstance(m, str) else " ".join(m) for m in told["merges"]],
        "end": tokenizer.eos_token_id,
        "chat": CHAT,
    }
    folder.mkdir(parents=True)
    python, maker = LLAMA / "bin" / "python", ROOT / "tests" / "gguf_model.py"
    command = [str(python), str(maker), str(folder / "model.gguf")]
    subprocess.run(command, input=json.dumps(words), text=True, check=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    models = tmp_path_factory.mktemp("models")
    for name in ("tiny", "notes"):
        save_gguf(models / name)
    started = Cluster.start(
        tmp_path_factory.mktemp("llama"),
        [ECHO],
        CORRAL_MODEL_CACHE_DIR=str(models),
        PATH=f"{LLAMA / 'bin'}{os.pathsep}{os.environ['PATH']}",
    )
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
    with speaking(cluster, 2) as made:
        yield made


def servers(cluster: Cluster) -> dict[int, str]:
    """The files that servers have loaded, by pid."""
    found = {}
    for supervisor in cluster.worker_pids("generate"):
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(supervisor).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    command = child.cmdline()
                    if command[:2] == ["llama-server", "-m"]:
                        found[child.pid] = Path(command[2]).parent.name
    return found


def ask(client: openai.OpenAI, count: int) -> openai.Stream[ChatCompletionChunk]:
    return client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=count,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )


def test_chats_completions_and_embeddings_come_from_llama_cpp(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    chat = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=8,
        temperature=0,
    )
    assert chat.choices[0].finish_reason == "length"
    assert chat.usage is not None
    assert chat.usage.completion_tokens == 8
    with ask(client, 8) as stream:
        chunks = list(stream)
    assert "".join(map(text_in, chunks)) == chat.choices[0].message.content
    assert len([chunk for chunk in chunks if text_in(chunk)]) > 1
    assert chunks[-1].usage == chat.usage
    short = client.completions.create(
        model="tiny", prompt="the quick", max_tokens=3, temperature=0
    )
    assert short.choices[0].text
    warm = [
        client.completions.create(
            model="tiny", prompt="the", max_tokens=20, temperature=1.5, seed=seed
        )
        for seed in (1, 1, 2)
    ]
    first, same, other = [each.choices[0].text for each in warm]
    assert first == same != other
    found = client.embeddings.create(model="notes", input=["a horse", "two horses"])
    assert [len(row.embedding) for row in found.data] == [256, 256]
    assert set(servers(cluster).values()) == {"tiny", "notes"}
    with pytest.raises(openai.BadRequestError, match="context size"):
        client.completions.create(model="tiny", prompt="xyz " * 9000, max_tokens=1)


def test_requests_run_together_and_end_when_clients_hang_up(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    before = servers(cluster)
    with ThreadPoolExecutor(3) as pool:
        streams = list(pool.map(lambda _: ask(client, LONG), range(3)))
    for stream in streams:
        assert next(iter(stream))
        stream.close()
    until(
        "nothing runs any more",
        lambda: not list(cluster.client.list_tasks(status="running")),
    )
    assert servers(cluster) == before


def test_a_server_killed_in_the_middle_leaves_the_stream_whole_and_comes_back(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    (killed,) = [pid for pid, name in servers(cluster).items() if name == "tiny"]
    seen: list[str] = []
    before, usage = "", None
    with ask(client, LONG) as stream:
        for chunk in stream:
            seen.append(text_in(chunk))
            usage = chunk.usage or usage
            if not before and len("".join(seen)) > 40:
                before = "".join(seen)
                os.kill(killed, signal.SIGKILL)
    whole = "".join(seen)
    newest = next(iter(cluster.client.list_tasks(status="completed")))
    task = cluster.client.get_task(newest.task_id)
    assert task.attempt == 2
    assert task.result["text"] == whole
    # Not what was said once more, from the start or from where it was cut.
    assert whole.count(before) == 1
    assert usage is not None
    assert usage.completion_tokens == pytest.approx(LONG, abs=LONG // 50)
    until("another is up", lambda: sorted(servers(cluster).values())[1:] == ["tiny"])
    assert killed not in servers(cluster)


def test_servers_end_with_their_models_and_with_their_worker(
    cluster: Cluster, client: openai.OpenAI
) -> None:
    before = servers(cluster)
    assert cluster.corral("models", "unload", "notes").code == 0
    until("its server is gone", lambda: list(servers(cluster).values()) == ["tiny"])
    (worker,) = [w for w in cluster.client.workers() if "generate" in w.job_types]
    assert cluster.corral("worker", "stop", worker.worker_id).code == 0
    until("none is left", lambda: not any(map(is_running, before)))

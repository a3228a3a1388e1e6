"""One inference worker with four slots: one process, and texts that join others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.acceptance.cluster import ECHO, Cluster, until
from tests.acceptance.served import runner, server
from tests.model_folder import Models, import_libraries

SERVER = "corral.worker.inference:InferenceWorker"
SLOTS = 4
LONG = {"prompt": "on", "max_tokens": 100_000, "stream": True}
SHORT = {"prompt": "the quick", "max_tokens": 8}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    place = tmp_path_factory.mktemp("folder")
    with ThreadPoolExecutor(1) as pool:
        # Both take long: side by side.
        making = pool.submit(_fill, place)
        running = Cluster.start(
            tmp_path_factory.mktemp("lanes"),
            [ECHO],
            MODEL_CACHE_DIR=str(place),
            OMP_NUM_THREADS="1",
        )
        try:
            making.result()
            running.client.launch_worker(
                SERVER,
                name="server",
                job_types=["generate"],
                params={"device": "cpu", "max_batch_tokens": 1 << 20},
                concurrency=SLOTS,
            )
            until("it is there", lambda: server(running).status == "online", 120)
            yield running
        finally:
            running.stop()


def _fill(place: Path) -> None:
    import_libraries()
    Models(place).have("novelist")


def test_a_short_text_is_answered_while_a_long_one_goes_on(cluster: Cluster) -> None:
    client = cluster.client
    long = client.submit("generate", LONG, model_name="novelist")
    next(iter(client.stream(long)))
    pid = runner(cluster)
    shorts = [
        client.submit("generate", SHORT, model_name="novelist") for _ in range(SLOTS)
    ]
    answers = [client.result(task, 120) for task in shorts]
    assert [answer["tokens"] for answer in answers] == [8] * SLOTS
    assert len({answer["text"] for answer in answers}) == 1
    assert client.get_task(long).status == "running"
    client.cancel(long)
    until("it has ended", lambda: client.get_task(long).status == "cancelled")
    again = client.run("generate", SHORT, model_name="novelist", timeout=120)
    assert again["text"] == answers[0]["text"]
    # One process for all, and it was not killed for one that was given up.
    assert runner(cluster) == pid

"""Servers as processes: they come up, stay up, share the work, and leave nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from corral.worker.base import Failure, Lost
from tests.acceptance.cluster import free_port
from tests.unit.worker.server.conftest import (
    COMMAND,
    SMALL,
    Desk,
    is_listening,
    is_running,
    state_at,
    wait_for,
)

Serve = Callable[..., Desk]
ROOT = Path(__file__).parents[4]
WHOLE = "".join(f"w{n} " for n in range(40))


def test_a_server_is_started_asked_and_ended_with_all_it_has_started(
    serve: Serve,
) -> None:
    desk = serve("--with-child", environment={"COLOUR": "red"}, args=["--x={gpus}"])
    (state,) = desk.states()
    assert state["colour"] == "red"
    assert state["argv"][-1] == "--x=0"
    assert desk.ask({"prompt": "count", "max_tokens": 3})["text"] == "w0 w1 w2 "
    desk.worker.unload_model("counter")
    wait_for("it is gone", lambda: not is_running(state["pid"]))
    wait_for("its child too", lambda: not is_running(state["child"]))
    with pytest.raises(Failure, match="not served"):
        desk.ask({"prompt": "count"})


def test_a_server_that_ignores_being_asked_to_end_is_killed(serve: Serve) -> None:
    desk = serve("--stubborn", stop_timeout_s=0.2)
    (state,) = desk.states()
    desk.worker.unload_model("counter")
    wait_for("it is gone", lambda: not is_running(state["pid"]))


def test_a_server_that_dies_while_idle_comes_back_by_itself(serve: Serve) -> None:
    desk = serve()
    (before,) = desk.replicas
    os.kill(before["pid"], signal.SIGKILL)
    after = wait_for(
        "another is up",
        lambda: (r := desk.replicas[0])["is_up"] and r["starts"] == 2 and r,
    )
    assert after["pid"] != before["pid"]
    assert desk.ask({"prompt": "count"})["text"] == WHOLE


def test_a_server_whose_keeper_dies_goes_with_it_and_comes_back(serve: Serve) -> None:
    desk = serve()
    (before,) = desk.replicas
    os.kill(psutil.Process(before["pid"]).ppid(), signal.SIGKILL)
    wait_for("it is gone", lambda: not is_running(before["pid"]))
    wait_for("another is up", lambda: desk.replicas[0]["starts"] == 2)


def test_a_server_that_hangs_is_ended_and_another_started(serve: Serve) -> None:
    desk = serve(hung_timeout_s=1)
    (before,) = desk.replicas
    os.kill(before["pid"], signal.SIGSTOP)
    wait_for("it is gone", lambda: not is_running(before["pid"]))
    wait_for("another is up", lambda: desk.replicas[0]["starts"] >= 2)


def test_a_server_that_dies_under_a_request_loses_it_and_the_next_goes_on(
    serve: Serve,
) -> None:
    desk = serve()
    with pytest.raises(Lost, match="went away"):
        desk.ask({"prompt": "crash", "stream": True})
    said = [{"text": piece} for piece in desk.runner.chunks["t"]]
    assert len(said) == 10
    answer = desk.ask({"prompt": "crash", "stream": True}, emitted=said)
    assert answer["text"] == WHOLE
    assert answer["tokens"] == 40
    assert "".join(desk.runner.chunks["t"]) == WHOLE
    assert desk.replicas[0]["starts"] == 2


def test_a_request_goes_to_the_least_busy_of_the_replicas(serve: Serve) -> None:
    desk = serve(replicas=2)
    busy: list[list[int]] = []

    def cancel(task_id: str) -> None:
        # When all are there, each of them held.
        tasks = [f"t{i}" for i in range(4)]
        if all(len(desk.runner.chunks.get(task, ())) == 10 for task in tasks):
            busy.append([replica["busy"] for replica in desk.replicas])
            for task in tasks:
                desk.runner.cancel(task)

    desk.runner.on_emit = cancel
    answers = desk.ask_all([{"prompt": "hold", "stream": True}] * 4)
    assert [answer["finish_reason"] for answer in answers] == ["cancelled"] * 4
    assert busy[0] == [2, 2]
    # They were there together, and hanging up has ended them.
    wait_for("they see it", lambda: [s["hung_up"] for s in desk.states()] == [2, 2])
    assert [state["most"] for state in desk.states()] == [2, 2]


def test_all_replicas_are_kept_up_and_the_others_serve_meanwhile(serve: Serve) -> None:
    desk = serve(replicas=2)
    first, second = desk.until_up(2)
    os.kill(first["pid"], signal.SIGKILL)
    wait_for("nobody listens there", lambda: not is_listening(first["port"]))
    for _ in range(4):
        assert desk.ask({"prompt": "count"})["text"] == WHOLE
    wait_for("it is back", lambda: desk.replicas[0]["starts"] == 2)
    again = desk.until_up(2)
    assert again[1]["pid"] == second["pid"]
    assert again[0]["pid"] != first["pid"]


def test_cards_are_shared_out_among_replicas(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d")
    monkeypatch.setenv("CORRAL_GPUS", "GPU-a,GPU-b,GPU-c,GPU-d")
    desk = serve(replicas=2, args=["--tensor-parallel-size", "{gpus}"])
    assert [s["cards"] for s in desk.states()] == ["GPU-a,GPU-b", "GPU-c,GPU-d"]
    assert [s["argv"][-1] for s in desk.states()] == ["2", "2"]


@pytest.mark.parametrize(
    ("args", "params", "said"),
    [
        (["--die"], {}, "exited with code 3; .*the weights are rotten"),
        (["--mute"], {"start_timeout_s": 1}, "did not answer within 1 s"),
    ],
)
def test_a_server_that_does_not_come_up_is_told_with_its_last_words(
    serve: Serve, args: list[str], params: dict[str, Any], said: str
) -> None:
    with pytest.raises(Failure, match=said) as found:
        serve(*args, **params)
    assert found.value.kind == "server_failed"
    assert "\n" not in str(found.value)


def test_a_load_that_nobody_waits_for_any_more_is_given_up(tmp_path: Path) -> None:
    command = [*COMMAND, "--mute"]
    desk = Desk(command=command, model_dir=str(tmp_path))
    desk.worker.context = desk.context()
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(desk.worker.load_model, "counter")
        desk.runner.cancel("t")
        with pytest.raises(Failure, match="cancelled"):
            loading.result(60)
    assert desk.worker.canary() == {"models": {}}


def test_a_program_that_is_not_there_is_named(serve: Serve) -> None:
    with pytest.raises(Failure, match="no program no-such-server") as found:
        serve(command=["no-such-server", "{port}"])
    assert found.value.kind == "missing_library"


def test_a_server_of_somebody_else_is_waited_for_and_never_ended(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    command = [sys.executable, "-S", str(SMALL), "--served-model-name", "theirs"]
    command += ["--no-health", "--port", str(port), "--key", "sesame"]
    monkeypatch.setenv("DOOR", "sesame")
    other = subprocess.Popen(command)
    try:
        url = f"http://127.0.0.1:{port}/v1"
        model = {"url": url, "served_name": "theirs", "api_key_variable": "DOOR"}
        desk = serve(command=None, models={"counter": model})
        assert desk.worker.model_sizes() == {"counter": 0.0}
        assert desk.ask({"prompt": "count"})["text"] == WHOLE
        other.kill()
        other.wait()
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(desk.ask, {"prompt": "count"})
            other = subprocess.Popen(command)
            assert asking.result(60)["text"] == WHOLE
        desk.worker.unload_model("counter")
        assert state_at(port)["pid"] == other.pid
    finally:
        other.kill()
        other.wait()


def test_servers_do_not_outlive_a_runner_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import json, sys, threading\n"
        "from corral.worker.server import ServerWorker\n"
        "worker = ServerWorker(**json.loads(sys.argv[1]))\n"
        "worker.start()\n"
        "worker.load_model('counter')\n"
        "print(worker.canary()['models']['counter'][0]['port'], flush=True)\n"
        "threading.Event().wait()\n"
    )
    params = {"command": [*COMMAND, "--with-child"], "model_dir": str(tmp_path)}
    runner = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(params)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        text=True,
    )
    with runner:
        assert runner.stdout is not None
        state = state_at(int(runner.stdout.readline()))
        assert is_running(state["pid"])
        assert is_running(state["child"])
        runner.kill()
    wait_for("the server is gone", lambda: not is_running(state["pid"]))
    wait_for("its child too", lambda: not is_running(state["child"]))

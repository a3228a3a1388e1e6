"""What is asked of a server, what is made of its answers, and of its errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.errors import WorkerError
from corral.worker.base import Failure, Lost
from corral.worker.server import ServerWorker
from tests.unit.worker.server.conftest import COMMAND, SMALL, Desk, wait_for

Serve = Callable[..., Desk]
WHOLE = "".join(f"w{n} " for n in range(40))
CHAT = [{"role": "user", "content": "count"}]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(command=COMMAND, model_dir=str(tmp_path_factory.mktemp("models")))
    made.worker.load_model("counter")
    yield made
    made.worker.unload_model("counter")


def last_body(desk: Desk) -> dict[str, Any]:
    (state,) = desk.states()
    body: dict[str, Any] = state["bodies"][-1]
    return body


def calm(desk: Desk) -> dict[str, Any]:
    """How the server is once it is at nothing any more."""
    state: dict[str, Any] = wait_for(
        "the server has let go", lambda: (s := desk.states()[0])["busy"] == 0 and s
    )
    return state


def test_a_prompt_and_messages_are_answered_with_their_counts(desk: Desk) -> None:
    assert desk.ask({"prompt": "count to three", "max_tokens": 3}) == {
        "text": "w0 w1 w2 ",
        "finish_reason": "length",
        "prompt_tokens": 3,
        "tokens": 3,
    }
    answer = desk.ask({"messages": CHAT, "stream": True}, task_id="chat")
    assert (answer["text"], answer["finish_reason"]) == (WHOLE, "stop")
    assert desk.runner.chunks["chat"] == [f"w{n} " for n in range(40)]


def test_every_value_of_a_request_reaches_the_server(desk: Desk) -> None:
    values = {"temperature": 0.5, "top_p": 0.25, "top_k": 7, "seed": 3, "max_tokens": 2}
    desk.ask({"prompt": "x", "stop": "end", "repetition_penalty": 1.5, **values})
    body = last_body(desk)
    assert body["stop"] == ["end"]
    assert body["repetition_penalty"] == 1.5
    assert {k: body[k] for k in values} == values


def test_texts_become_vectors_in_their_order(desk: Desk) -> None:
    told = desk.ask({"text": ["a", "bcd"]}, job_type="embed")
    assert told["embeddings"] == [pytest.approx([0.6, 0.8])] * 2
    assert (told["dimensions"], told["tokens"]) == (2, 4)
    raw = desk.ask({"text": "ab", "normalize": False}, job_type="embed")
    assert raw["embeddings"] == [[6.0, 8.0]]


def test_names_of_other_systems_are_answered_in_their_envelope(desk: Desk) -> None:
    told = desk.ask({"text": "x", "max_length": 1}, job_type="run_llm_inference")
    assert told["result"]["generated_text"] == WHOLE
    assert told["metadata"]["model_name"] == "counter"
    health = desk.ask({}, job_type="health_check")
    assert health["status"] == "healthy"
    assert health["models"]["counter"][0]["is_up"]


@pytest.mark.parametrize(
    ("payload", "job_type", "kind", "said"),
    [
        ({"prompt": "x " * 2000}, "generate", "bad_input", "maximum context length"),
        ({"prompt": "x", "top_p": 7}, "generate", "bad_input", "top_p"),
        ({"text": "x"}, "classify", "unsupported_type", "not classify"),
    ],
)
def test_a_request_that_cannot_be_done_is_refused_for_good(
    desk: Desk, payload: Any, job_type: str, kind: str, said: str
) -> None:
    with pytest.raises(Failure, match=said) as found:
        desk.ask(payload, job_type=job_type)
    assert found.value.kind == kind
    assert found.value.is_final


def test_a_fault_of_the_server_is_a_loss_and_tried_again(desk: Desk) -> None:
    with pytest.raises(Lost, match="answered 500: something broke"):
        desk.ask({"prompt": "boom"})
    good, bad = desk.ask_all([{"prompt": "x", "max_tokens": 1}, {"prompt": "boom"}])
    assert good["text"] == "w0 "
    assert isinstance(bad, Lost)


def test_one_of_a_batch_is_answered_before_the_others(desk: Desk) -> None:
    contexts = [desk.context("slow"), desk.context("quick")]
    desk.worker.contexts = contexts
    asked = [{"prompt": "hold"}, {"prompt": "count", "max_tokens": 1}]
    answers = desk.worker.run_batch(asked)
    place, answer = next(answers)
    assert (place, answer["text"]) == (1, "w0 ")
    desk.runner.cancel("slow")
    ((place, answer),) = answers
    assert (place, answer["finish_reason"]) == (0, "cancelled")


def test_a_cancelled_request_ends_at_the_server_too(desk: Desk) -> None:
    def cancel(task_id: str) -> None:
        if len(desk.runner.chunks["held"]) == 10:
            desk.runner.cancel("held")

    desk.runner.on_emit = cancel
    before = calm(desk)["hung_up"]
    answer = desk.ask({"prompt": "hold", "stream": True}, task_id="held")
    assert answer["finish_reason"] == "cancelled"
    assert answer["text"] == "".join(f"w{n} " for n in range(10))
    assert calm(desk)["hung_up"] == before + 1
    assert desk.replicas[0]["starts"] == 1


@pytest.mark.parametrize(
    ("resume", "arguments", "goes_on"),
    [
        ("continue_final_message", [], True),
        ("prefill", ["--prefill"], True),
        ("again", [], False),
    ],
)
def test_a_chat_that_was_cut_goes_on_as_its_server_can(
    serve: Serve, resume: str, arguments: list[str], goes_on: bool
) -> None:
    desk = serve(*arguments, resume=resume)
    said = [{"text": f"w{n} "} for n in range(30)]
    answer = desk.ask({"messages": CHAT, "stream": True}, emitted=said)
    assert answer["text"] == WHOLE
    assert desk.runner.went_on == ({"t": 30} if goes_on else {})
    sent = desk.runner.chunks["t"]
    assert sent == [f"w{n} " for n in range(30 if goes_on else 0, 40)]


def test_a_stream_that_does_not_say_that_it_is_done_is_whole_all_the_same(
    serve: Serve,
) -> None:
    desk = serve("--no-done")
    answer = desk.ask({"prompt": "count"})
    assert (answer["text"], answer["finish_reason"]) == (WHOLE, "stop")


def test_a_text_that_was_all_sent_is_not_asked_for_again(desk: Desk) -> None:
    said = [{"text": "w0 "}, {"text": "w1 "}]
    asked = {"prompt": "x", "max_tokens": 2, "stream": True}
    before = desk.states()[0]["asked"]
    answer = desk.ask(asked, emitted=said)
    assert (answer["text"], answer["finish_reason"]) == ("w0 w1 ", "length")
    assert desk.states()[0]["asked"] == before


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models, with the programs that are known on the PATH."""
    shelf = tmp_path / "bin"
    shelf.mkdir()
    for name in ("vllm", "llama-server"):
        file = shelf / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{SMALL}" "$@"\n')
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shelf}{os.pathsep}{os.environ['PATH']}")
    models = tmp_path / "models"
    (models / "counter").mkdir(parents=True)
    return models


def test_vllm_is_started_with_the_folder_of_a_model(
    serve: Serve, programs: Path
) -> None:
    config = '{"architectures": ["LlamaForCausalLM"]}'
    (programs / "counter" / "config.json").write_text(config)
    model = {"dtype": "bfloat16", "args": ["--max-model-len", "4096"]}
    desk = serve(
        command=None, server="vllm", model_dir=str(programs), models={"counter": model}
    )
    (state,) = desk.states()
    folder, port = str(programs / "counter"), str(desk.replicas[0]["port"])
    assert state["argv"] == [
        "serve", folder, "--host", "127.0.0.1", "--port", port,
        "--served-model-name", "counter", "--dtype", "bfloat16",
        "--max-model-len", "4096",
    ]  # fmt: skip
    desk.ask({"prompt": "x", "max_tokens": 1})
    assert last_body(desk)["top_k"] == -1


def test_llama_server_is_started_with_the_file_of_a_model(
    serve: Serve, programs: Path
) -> None:
    file = programs / "counter" / "some-Q4.gguf"
    file.write_bytes(b"\0" * (1 << 20))
    desk = serve(command=None, server="llama.cpp", model_dir=str(programs))
    (state,) = desk.states()
    assert state["argv"][:2] == ["-m", str(file)]
    assert desk.worker.model_sizes() == {"counter": 1.0}
    desk.ask({"prompt": "x", "max_tokens": 1, "repetition_penalty": 1.5})
    body = last_body(desk)
    assert (body["repeat_penalty"], body["top_k"], body["min_p"]) == (1.5, -1, 0.0)
    said = [{"text": "w0 "}]
    desk.ask({"messages": CHAT, "stream": True, "max_tokens": 2}, emitted=said)
    body = last_body(desk)
    assert body["messages"][-1] == {"role": "assistant", "content": "w0 "}
    assert body["continue_final_message"] is True
    assert desk.worker.model_memory_mb("counter") is None


def test_a_model_that_is_not_there_is_unknown(serve: Serve, programs: Path) -> None:
    (programs / "counter").rmdir()
    with pytest.raises(Failure, match="no model 'counter'") as found:
        serve(command=None, server="vllm", model_dir=str(programs))
    assert found.value.kind == "unknown_model"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "give a server"),
        ({"server": "vllm", "url": "http://x"}, "server and url, not both"),
        ({"command": []}, "command is empty"),
        ({"server": "vllm", "replicas": 0}, "replicas"),
        ({"server": "vllm", "models": {"m": {"sise": 1}}}, "model m: .*sise"),
        ({"command": ["x", "{prot}"]}, "unknown field {prot}; known: {folder}"),
        ({"server": "vlm"}, "no server 'vlm'; known: vllm, llama.cpp"),
        ({"models": {"m": {"url": "localhost:80"}}}, "model m .*not like http://host"),
        ({"server": "vllm", "resume": "never"}, "resume is 'never'"),
    ],
)
def test_wrong_parameters_are_told_in_one_line(
    tmp_path: Path, params: dict[str, Any], said: str
) -> None:
    with pytest.raises(WorkerError, match=said) as found:
        ServerWorker(model_dir=str(tmp_path), **params).start()
    assert "\n" not in str(found.value)

"""Every kind of model answers, alone and in a batch, under all of its names."""

from __future__ import annotations

import base64
import io
import math
import wave
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from tests.unit.worker.inference.conftest import Served

Serve = Callable[..., Served]


def picture(colour: tuple[int, int, int] = (200, 10, 10), mode: str = "RGB") -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), colour).convert(mode).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def opened(image: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(image)))


def sound(audio: str) -> tuple[int, int]:
    """Rate and number of samples."""
    with wave.open(io.BytesIO(base64.b64decode(audio))) as file:
        return file.getframerate(), file.getnframes()


def test_embeddings_are_vectors_of_length_one(serve: Serve) -> None:
    served = serve("reader")
    answer = served.ask("embed", "reader", {"text": ["the lazy dog", "a herd"]})
    assert answer["dimensions"] == 32
    assert [len(v) for v in answer["embeddings"]] == [32, 32]
    for vector in answer["embeddings"]:
        assert math.isclose(sum(x * x for x in vector), 1.0, rel_tol=1e-4)
    assert answer["tokens"] > 4
    raw = served.ask("embed", "reader", {"text": "the lazy dog", "normalize": False})
    assert not math.isclose(sum(x * x for x in raw["embeddings"][0]), 1.0, rel_tol=0.1)


def test_a_text_gets_the_labels_of_its_model(serve: Serve) -> None:
    answer = serve("judge").ask("classify", "judge", {"text": "the quick fox"})
    assert {each["label"] for each in answer["labels"]} == {"calm", "wild", "tame"}
    assert answer["label"] == answer["labels"][0]["label"]
    assert math.isclose(sum(each["score"] for each in answer["labels"]), 1.0)
    both = serve("judge").ask("classify", "judge", {"text": ["a", "b"], "top_k": 1})
    assert [len(each["labels"]) for each in both["results"]] == [1, 1]


def test_an_image_gets_a_caption(serve: Serve) -> None:
    served = serve("seer")
    answer = served.ask("caption", "seer", {"image": picture(), "max_tokens": 5})
    assert answer["caption"]
    assert (answer["image_size"], answer["image_mode"]) == ([40, 30], "RGB")
    url = f"data:image/png;base64,{picture(mode='L')}"
    grey = served.ask("caption", "seer", {"image": url, "prompt": "a dog"})
    assert grey["image_mode"] == "L"


def test_text_is_spoken_in_the_voice_and_speed_asked_for(serve: Serve) -> None:
    served = serve("voice")
    plain = served.ask("speak", "voice", {"text": "good morning", "seed": 5})
    rate, samples = sound(plain["audio"])
    assert (rate, plain["sample_rate"], plain["format"]) == (8000, 8000, "wav")
    assert math.isclose(plain["duration_s"], samples / rate)
    ask = {"text": "good morning", "seed": 5, "voice": 1, "speed": 0.25}
    slow = served.ask("speak", "voice", ask)
    assert sound(slow["audio"])[1] > samples
    assert served.ask("speak", "voice", ask)["audio"] == slow["audio"]


def test_a_model_with_a_vocoder_speaks_in_the_voices_it_has(serve: Serve) -> None:
    served = serve("narrator")
    ask = {"text": "hello", "seed": 1}
    anna = served.ask("speak", "narrator", {**ask, "voice": "anna"})
    assert (anna["sample_rate"], sound(anna["audio"])[0]) == (16_000, 16_000)
    otto = served.ask("speak", "narrator", {**ask, "voice": "otto"})
    assert otto["audio"] != anna["audio"]
    with pytest.raises(Exception, match=r"'karl' is unknown; known: anna, otto"):
        served.ask("speak", "narrator", {**ask, "voice": "karl"})
    with pytest.raises(Exception, match="leave them out"):
        served.ask("speak", "narrator", {**ask, "speed": 2})


def test_an_image_is_drawn_again_with_its_seed(serve: Serve) -> None:
    served = serve("painter")
    ask = {"prompt": "a dog", "steps": 2, "seed": 11}
    first = served.ask("draw", "painter", ask)
    assert opened(first["image"]).size == (16, 16)
    assert first["image"] == served.ask("draw", "painter", ask)["image"]
    assert served.runner.fractions[-1] == 1.0
    other = served.ask("draw", "painter", {"prompt": "a dog", "steps": 2})
    again = served.ask("draw", "painter", {**ask, "seed": other["seed"]})
    assert again["image"] == other["image"]


BATCHES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "generate": (
        "writer",
        [
            {"prompt": "the quick brown fox", "max_tokens": 12},
            {"prompt": "a", "max_tokens": 7, "repetition_penalty": 1.5},
            {"prompt": "herd of horses", "temperature": 0.9, "seed": 4, "top_p": 0.8},
            {"prompt": "sailor", "temperature": 1.2, "seed": 9, "top_k": 5},
        ],
    ),
    "embed": (
        "reader",
        [{"text": "a"}, {"text": ["the lazy dog", "fox", "a herd of"]}],
    ),
    "classify": ("judge", [{"text": "a"}, {"text": "the quick brown fox jumps"}]),
    "caption": (
        "seer",
        [
            {"image": picture(), "max_tokens": 6},
            {"image": picture((0, 90, 0)), "max_tokens": 6},
        ],
    ),
    "draw": (
        "painter",
        [
            {"prompt": "a dog", "steps": 2, "seed": 1},
            {"prompt": "the fox", "steps": 2, "seed": 2, "negative_prompt": "a"},
        ],
    ),
}


@pytest.mark.parametrize("kind", sorted(BATCHES))
def test_a_batch_answers_as_its_requests_do_one_by_one(kind: str, serve: Serve) -> None:
    model, payloads = BATCHES[kind]
    served = serve(model)
    alone = [served.ask(kind, model, payload) for payload in payloads]
    together = served.ask_all(kind, model, payloads)
    for one, other in zip(alone, together, strict=True):
        _assert_alike(kind, one, other)


def _assert_alike(kind: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    if kind == "embed":
        pairs = zip(one["embeddings"], other["embeddings"], strict=True)
        for a, b in pairs:
            assert a == pytest.approx(b, abs=1e-5)
    elif kind == "classify":
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)
    elif kind == "draw":
        # Rounding may move a colour by one step.
        a, b = opened(one["image"]).tobytes(), opened(other["image"]).tobytes()
        assert max(abs(x - y) for x, y in zip(a, b, strict=True)) <= 1
    else:
        assert one == other


@pytest.mark.parametrize(
    ("name", "model", "payload", "fields"),
    [
        (
            "app.tasks.run_llm_inference",
            "writer",
            {"text": "the quick", "max_tokens": 4},
            {"generated_text", "input_text", "full_response"},
        ),
        (
            "run_sd_inference",
            "painter",
            {"prompt": "a dog", "num_inference_steps": 2, "width": 16, "height": 24},
            {"image", "width", "height", "seed", "num_inference_steps"},
        ),
        (
            "run_tts_inference",
            "voice",
            {"text": "hello", "voice_id": "1"},
            {"audio", "format", "sample_rate"},
        ),
        (
            "run_image_to_text_inference",
            "seer",
            {"image_data": picture(), "max_tokens": 4},
            {"caption", "image_size", "image_mode"},
        ),
    ],
)
def test_tasks_of_the_old_names_answer_in_their_envelope(
    name: str, model: str, payload: dict[str, Any], fields: set[str], serve: Serve
) -> None:
    answer = serve(model).ask(name, model, payload)
    assert answer.keys() == {"result", "metadata"}
    assert fields <= answer["result"].keys()
    told = answer["metadata"]
    assert told["model_name"] == model
    assert told["execution_time"] > 0
    assert told["params"] == {k: v for k, v in payload.items() if k != "image_data"}
    assert told["system_info"]["device"] == "cpu"
    assert answer["result"].get("audio", "there") != ""


def test_a_health_check_needs_no_model(serve: Serve) -> None:
    answer = serve().ask("app.tasks.health_check", None, {})
    assert (answer["status"], answer["device"]) == ("healthy", "cpu")


@pytest.mark.parametrize(
    ("kind", "model"), [("embed", "reader"), ("classify", "judge")]
)
def test_an_exported_graph_answers_as_the_model_it_was_made_of(
    kind: str, model: str, serve: Serve
) -> None:
    served = serve(model, f"{model}-graph")
    payloads = [{"text": "the quick brown fox"}, {"text": "a"}]
    wanted = served.ask_all(kind, model, payloads)
    found = served.ask_all(kind, f"{model}-graph", payloads)
    for one, other in zip(wanted, found, strict=True):
        if kind == "embed":
            (a,), (b,) = one["embeddings"], other["embeddings"]
            assert a == pytest.approx(b, abs=1e-4)
            assert one["tokens"] == other["tokens"]
        else:
            assert one["label"] == other["label"]
            assert one["score"] == pytest.approx(other["score"], abs=1e-4)


def test_a_name_of_ones_own_asks_for_what_the_model_does(serve: Serve) -> None:
    answer = serve("judge").ask("mood-of-letters", "judge", {"text": "a herd"})
    assert answer["label"] in ("calm", "wild", "tame")

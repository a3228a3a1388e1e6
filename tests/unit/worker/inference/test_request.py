"""Bad input is refused in one line that names the field; no model is needed for it."""

from __future__ import annotations

from typing import Any

import pytest

from corral.worker.base import Failure
from corral.worker.inference.errors import ModelOutOfMemory, RequestRefused, Unusable
from corral.worker.inference.kind import ModelKind, ask_of, is_health_check, kind_named
from corral.worker.inference.request import Generate, image_bytes, read_request


def refusal(job_type: str, payload: Any) -> str:
    ask = ask_of(job_type)
    assert ask is not None
    with pytest.raises(RequestRefused) as caught:
        read_request(ask, payload)
    assert (caught.value.kind, caught.value.is_final) == ("bad_input", True)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_k", -1),
        ("repetition_penalty", 0),
        ("max_tokens", 0),
        ("max_tokens", 2.5),
        ("stop", [""]),
        ("seed", -1),
        ("seed", 1 << 64),
    ],
)
def test_sampling_values_out_of_bounds_are_named(field: str, value: Any) -> None:
    said = refusal("generate", {"prompt": "a", field: value})
    assert said.startswith(f"{field}")
    assert ": " in said


def test_a_misspelt_field_is_refused_and_not_ignored() -> None:
    said = refusal("generate", {"prompt": "a", "temprature": 1.0})
    assert "temprature" in said


@pytest.mark.parametrize(
    ("job_type", "payload", "said"),
    [
        ("generate", {}, "generate needs either prompt or messages"),
        ("generate", {"prompt": ""}, "prompt: it is empty"),
        ("generate", {"prompt": "a", "messages": []}, "either prompt or messages"),
        ("generate", {"messages": [{"role": "user"}]}, "messages[0]: "),
        ("embed", {}, "missing required field `text`"),
        ("embed", {"text": []}, "text: Expected `array` of length >= 1"),
        ("classify", None, 'classify needs a payload like {"text": ...}'),
        ("caption", [], 'caption needs a payload like {"image": ...}'),
        ("speak", {"text": "a", "speed": 9}, "speed: Expected `float` <= 4.0"),
        ("draw", {"prompt": "a", "width": 12}, "width: Expected"),
        ("run_llm_inference", 1, 'generate needs a payload like {"text": ...}'),
        ("run_sd_inference", {"prompt": "a", "guidance_scale": -1}, "guidance_scale: "),
        ("run_tts_inference", {"text": ""}, "text: Expected"),
        ("run_image_to_text_inference", {"image_data": 1}, "image_data: Expected"),
    ],
)
def test_what_is_wrong_is_said_in_the_senders_words(
    job_type: str, payload: Any, said: str
) -> None:
    assert said in refusal(job_type, payload)


@pytest.mark.parametrize(
    ("failure", "is_final"),
    [
        (RequestRefused("made to embed", "unsupported_type"), True),
        (Unusable("it brings code", "remote_code"), True),
        (Unusable("another hash", "corrupt_model"), False),
        (Unusable("not here", "unknown_model"), False),
        (Unusable("no torch", "missing_library"), False),
        (ModelOutOfMemory("not even alone"), False),
    ],
)
def test_only_what_no_node_could_do_is_final(failure: Failure, is_final: bool) -> None:
    assert failure.is_final is is_final


def test_an_image_that_is_no_base64_is_refused() -> None:
    with pytest.raises(RequestRefused, match="image: it is not base64"):
        image_bytes("é")


def test_old_names_bring_their_own_defaults_and_pass_over_strange_fields() -> None:
    ask = ask_of("app.tasks.run_llm_inference")
    assert ask is not None
    request = read_request(ask, {"text": "a", "model_name": "m", "device": "gpu"})
    assert isinstance(request, Generate)
    assert (request.prompt, request.max_tokens) == ("a", 50)
    told = (request.temperature, request.top_p, request.repetition_penalty)
    assert told == (0.7, 0.9, 1.1)


def test_names_of_job_types_and_of_types_of_models_lead_to_kinds() -> None:
    for kind in ModelKind:
        ask = ask_of(kind)
        assert ask is not None
        assert (ask.kind, ask.is_foreign) == (kind, False)
        assert kind_named(kind) is kind
    for name in ("llm", "stable_diffusion", "tts", "image_to_text"):
        ask = ask_of(name)
        assert ask is not None
        assert ask.is_foreign
    assert ask_of("anything-else") is None
    assert is_health_check("app.tasks.health_check")
    types = ("llm", "vision", "tts", "diffusion", "embedding")
    assert all(kind_named(name) for name in types)
    assert kind_named("poetry") is None

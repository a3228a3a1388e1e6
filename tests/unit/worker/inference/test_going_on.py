"""A generation that was cut off goes on as if it never had been."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from corral.worker.base import at_hand
from tests.property_examples import STRICT
from tests.unit.worker.inference.conftest import Served

Serve = Callable[..., Served]
GREEDY: dict[str, Any] = {"prompt": "the quick", "max_tokens": 24, "stream": True}
SEEDED = {**GREEDY, "temperature": 1.3, "seed": 11}
CUT = {**SEEDED, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.3}


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve("writer")


def write(served: Served, ask: Any, emitted: list[Any]) -> tuple[Any, list[Any]]:
    """The answer of an attempt after others, and the pieces that it sent itself."""
    served.emitted = emitted
    served.runner.pieces.clear()
    if served.worker.lanes > 1:
        served.worker.load_model("writer")
        at_hand.set([served.context("t", "generate", "writer")])
        answer = served.worker.run(ask)
    else:
        answer = served.ask("generate", "writer", ask)
    return answer, served.runner.pieces.get("t", [])


def cuts(pieces: list[Any]) -> range:
    """After how many pieces it was cut off: after each in CI, after some elsewhere."""
    return range(1, len(pieces) + 1, 1 if STRICT else 3)


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("ask", [GREEDY, SEEDED, CUT], ids=["greedy", "seeded", "cut"])
def test_whatever_was_sent_the_rest_is_that_of_an_unbroken_run(
    served: Served, ask: Any, lanes: int
) -> None:
    served.worker.lanes = lanes
    whole, pieces = write(served, ask, [])
    assert whole["tokens"] == 24
    assert len(pieces) > 12
    # Letters of several bytes, so that pieces have more tokens than one.
    assert any(len(piece["tokens"]) > 1 for piece in pieces)
    for count in cuts(pieces):
        answer, rest = write(served, ask, pieces[:count])
        assert answer == whole
        assert rest == pieces[count:]
        assert served.runner.went_on == {"t": count}


@pytest.mark.parametrize("at", [4, 11, 19])
def test_text_held_back_for_a_stop_word_is_not_lost(served: Served, at: int) -> None:
    unstopped, _ = write(served, SEEDED, [])
    text = unstopped["text"]
    stops = [text[at : at + 3] + "?", text[at + 6 : at + 9]]
    whole, pieces = write(served, {**SEEDED, "stop": stops}, [])
    assert text.startswith(whole["text"])
    for count in cuts(pieces):
        answer, rest = write(served, {**SEEDED, "stop": stops}, pieces[:count])
        assert (answer, rest) == (whole, pieces[count:])


def test_it_can_be_cut_off_more_than_once(served: Served) -> None:
    _, pieces = write(served, SEEDED, [])
    _, second = write(served, SEEDED, pieces[:3])
    _, third = write(served, SEEDED, pieces[:3] + second[:5])
    assert pieces[:3] + second[:5] + third == pieces


def test_requests_of_a_batch_go_on_each_from_its_own_place(served: Served) -> None:
    asks = [GREEDY, {**SEEDED, "prompt": "a herd of"}, {**CUT, "seed": 5}]
    alone = [write(served, ask, []) for ask in asks]
    served.emitted_of = {f"t{i}": alone[i][1][: 6 * i] for i in range(3)}
    answers = served.ask_all("generate", "writer", asks)
    assert answers == [answer for answer, _ in alone]
    for i, (_, pieces) in enumerate(alone):
        assert served.runner.pieces[f"t{i}"] == pieces[6 * i :]


def test_what_was_sent_to_the_end_is_answered_without_another_token(
    served: Served,
) -> None:
    whole, pieces = write(served, GREEDY, [])
    answer, rest = write(served, GREEDY, pieces)
    assert (answer, rest) == (whole, [])


def test_text_without_its_tokens_is_gone_on_from_as_text(served: Served) -> None:
    whole, pieces = write(served, GREEDY, [])
    bare = [{"text": piece["text"]} for piece in pieces[:9]]
    answer, rest = write(served, GREEDY, bare)
    sent = "".join(piece["text"] for piece in bare)
    assert answer["text"] == sent + "".join(piece["text"] for piece in rest)
    assert answer["prompt_tokens"] == whole["prompt_tokens"]
    # What comes next cannot be told with all tokens either: it is text once more.
    again, _ = write(served, GREEDY, bare + rest[:4])
    assert again["text"].startswith(sent + "".join(p["text"] for p in rest[:4]))


def test_a_task_that_is_cancelled_sends_no_half_letters(served: Served) -> None:
    _, pieces = write(served, SEEDED, [])
    for asked in range(1, 12):
        served.runner.asked.clear()
        served.runner.cancelled.clear()
        served.runner.cancel_at["t"] = asked
        _, some = write(served, SEEDED, [])
        assert some == pieces[: len(some)]

"""Text generation: streamed, stopped, seeded, taken up again, cancelled in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.worker.inference.conftest import Served

Serve = Callable[..., Served]


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve("writer")


def write(served: Served, **ask: Any) -> Any:
    return served.ask("generate", "writer", {"prompt": "the quick", **ask})


def test_pieces_that_are_streamed_make_up_the_whole_text(served: Served) -> None:
    answer = write(served, max_tokens=40, stream=True)
    pieces = served.runner.chunks["t"]
    assert len(pieces) > 5
    assert "".join(pieces) == answer["text"]
    assert answer["text"] == write(served, max_tokens=40)["text"]


def test_every_request_of_a_batch_streams_its_own_text(served: Served) -> None:
    asks = [
        {"prompt": "the quick", "max_tokens": 20, "stream": True},
        {"prompt": "a herd of horses", "max_tokens": 9},
        {"prompt": "sailor", "max_tokens": 15, "stream": True},
    ]
    answers = served.ask_all("generate", "writer", asks)
    chunks = served.runner.chunks
    assert chunks.keys() == {"t0", "t2"}
    assert "".join(chunks["t0"]) == answers[0]["text"]
    assert "".join(chunks["t2"]) == answers[2]["text"]
    assert [answer["tokens"] for answer in answers] == [20, 9, 15]


def test_text_ends_before_a_stop_word_and_none_of_it_is_streamed(
    served: Served,
) -> None:
    whole = write(served, max_tokens=40)["text"]
    stop = whole[12:15]
    answer = write(served, max_tokens=40, stop=["never there", stop], stream=True)
    assert answer["text"] == whole[: whole.index(stop)]
    assert answer["finish_reason"] == "stop"
    assert "".join(served.runner.chunks["t"]) == answer["text"]


def test_a_stop_word_that_only_begins_is_text_after_all(served: Served) -> None:
    whole = write(served, max_tokens=12)["text"]
    answer = write(served, max_tokens=12, stop=whole[-2:] + "?", stream=True)
    assert answer["text"] == whole == "".join(served.runner.chunks["t"])
    assert answer["finish_reason"] == "length"


def test_a_seed_gives_the_same_text_and_another_seed_another(served: Served) -> None:
    ask = {"max_tokens": 30, "temperature": 1.5}
    first = write(served, seed=1, **ask)
    assert write(served, seed=1, **ask) == first
    assert write(served, seed=2, **ask) != first
    assert write(served, **ask)["text"] != write(served, **ask)["text"]


def test_only_the_best_token_is_left_by_top_k_of_one(served: Served) -> None:
    greedy = write(served, max_tokens=20)
    assert write(served, max_tokens=20, temperature=3.0, top_k=1) == greedy
    assert write(served, max_tokens=20, temperature=3.0, top_p=1e-6) == greedy


def test_messages_go_through_the_models_template(served: Served) -> None:
    messages = [{"role": "user", "content": "hello"}]
    chat = served.ask("generate", "writer", {"messages": messages, "max_tokens": 9})
    plain = {"prompt": "user: hello\nassistant:", "max_tokens": 9}
    assert chat == served.ask("generate", "writer", plain)


def test_a_new_attempt_goes_on_from_what_was_sent(served: Served) -> None:
    sent = "brown fox"
    served.emitted = [{"text": "brown"}, {"text": " fox"}]
    answer = write(served, max_tokens=20, stream=True)
    assert served.runner.went_on == {"t": 2}
    served.emitted = []
    assert answer["text"].startswith(sent)
    assert sent + "".join(served.runner.chunks["t"]) == answer["text"]
    alone = served.ask("generate", "writer", {"prompt": "the quick" + sent})
    assert alone["text"].startswith(answer["text"].removeprefix(sent))
    assert answer["tokens"] == 20
    assert answer["prompt_tokens"] == write(served)["prompt_tokens"]


def test_one_request_of_a_batch_is_cancelled_and_the_others_go_on(
    served: Served,
) -> None:
    asks = [{"prompt": f"{word} fox", "max_tokens": 30} for word in ("a", "the", "of")]
    alone = [served.ask("generate", "writer", ask) for ask in asks]
    served.runner.cancel_at["t1"] = 6
    answers = served.ask_all("generate", "writer", asks)
    assert served.runner.patient == {"t0", "t1", "t2"}
    assert (answers[0], answers[2]) == (alone[0], alone[2])
    assert answers[1]["finish_reason"] == "cancelled"
    assert answers[1]["tokens"] == 6
    assert alone[1]["text"].startswith(answers[1]["text"].rstrip("\ufffd"))


def test_when_all_of_a_batch_is_cancelled_nothing_more_is_computed(
    served: Served,
) -> None:
    served.runner.cancelled |= {"t0", "t1"}
    asks = [{"prompt": "the", "max_tokens": 100}] * 2
    answers = served.ask_all("generate", "writer", asks)
    assert [answer["tokens"] for answer in answers] == [1, 1]


def test_an_answer_ends_where_the_model_ends(served: Served) -> None:
    answer = write(served, max_tokens=1000)
    assert answer["finish_reason"] == "length"
    assert answer["prompt_tokens"] + answer["tokens"] == 128


def test_requests_that_fail_do_not_fail_their_batch(served: Served) -> None:
    good = {"prompt": "the quick", "max_tokens": 5}
    asks: list[Any] = [good, {"prompt": "the " * 200}, {"top_p": 7}, "no object", good]
    first, long, wrong, strange, last = served.ask_all("generate", "writer", asks)
    assert first == last == write(served, max_tokens=5)
    assert "tokens, and model writer takes 128" in str(long)
    assert str(wrong).startswith("top_p: Expected")
    assert str(strange) == 'generate needs a payload like {"prompt": ...}'
    assert {error.kind for error in (long, wrong, strange)} == {"bad_input"}


def test_a_batch_whose_tasks_nobody_named_is_left_to_be_run_one_by_one(
    served: Served,
) -> None:
    with pytest.raises(Exception, match="needs the context of each"):
        served.worker.run_batch([{"prompt": "a"}, {"prompt": "b"}])


def test_a_worker_with_a_model_of_its_own_needs_no_name(serve: Serve) -> None:
    served = serve("writer", model="writer")
    answer = served.ask("generate", None, {"prompt": "the quick", "max_tokens": 3})
    assert answer["tokens"] == 3
    with pytest.raises(Exception, match="--model other"):
        served.ask("generate", None, {"prompt": "the quick", "model": "other"})

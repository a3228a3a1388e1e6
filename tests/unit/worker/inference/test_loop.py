"""Calls that come while others are being answered: they join, leave and wait.

What imports torch is imported late: every process that looks for tests reads this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from corral.worker.base import Failure, at_hand
from corral.worker.inference.batching import BatchLimits, ModelSpeed
from corral.worker.inference.call import ModelCall
from corral.worker.inference.call_queue import BatchRules, CallQueue
from corral.worker.inference.load.batch_memory import BatchMemory, Peaks
from corral.worker.inference.request import Generate
from tests.unit.worker.inference.conftest import Served

if TYPE_CHECKING:
    import torch

    from corral.worker.inference.text.generate import TextModel

    Hook = Callable[[torch.Tensor], None]

Serve = Callable[..., Served]
LIMIT_S = 60.0
LANES = 8

ASKS: list[dict[str, Any]] = [
    {"prompt": "the quick", "max_tokens": 40},
    {"prompt": "a herd of horses stood by the gate", "max_tokens": 7},
    {"prompt": "sailor", "max_tokens": 25, "temperature": 1.2, "seed": 5},
    {"prompt": "one", "max_tokens": 30, "repetition_penalty": 1.7},
    {"prompt": "night", "max_tokens": 30, "temperature": 2.0, "top_k": 9, "seed": 3},
    {"prompt": "a b c", "max_tokens": 33, "stop": ["e"], "stream": True},
]

SHAPE: dict[str, Any] = {
    "vocab_size": 9,
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
LONG: dict[str, Any] = {"prompt": "?!" * 40, "max_tokens": 7}
"""Its prompt alone has more tokens than any of the others with its answer."""
WIDE = 70


def text_model(served: Served, name: str) -> TextModel:
    from corral.worker.inference.text.generate import TextModel

    loaded = served.worker._loaded.loaded(name)
    assert isinstance(loaded, TextModel)
    return loaded


class Shared:
    """A worker with lanes, each a thread here; `seen` are the rows of each step."""

    def __init__(self, served: Served, model: str) -> None:
        self._main = ThreadPoolExecutor(1)
        served.worker.lanes = LANES
        served.worker.in_main = self._main.submit  # type: ignore[assignment]
        served.worker.load_model(model)
        self.served, self.model = served, model
        self._threads = ThreadPoolExecutor(LANES)
        self.seen: list[int] = []
        self.spoken = threading.Condition()

    def ask(self, task_id: str, *payloads: Any, kind: str = "generate") -> Future[Any]:
        return self._threads.submit(self._ask, kind, task_id, payloads)

    def _ask(self, kind: str, task_id: str, payloads: tuple[Any, ...]) -> Any:
        ids = [f"{task_id}{i or ''}" for i in range(len(payloads))]
        at_hand.set([self.served.context(i, kind, self.model) for i in ids])
        worker = self.served.worker
        if len(payloads) == 1:
            return worker.run(payloads[0])
        told = worker.run_batch(list(payloads))
        assert isinstance(told, Iterator)
        return [answer for _, answer in sorted(told)]

    def hook(self, does: Hook) -> None:
        """Have every step of the model looked at first: the rows it is about."""
        loaded = text_model(self.served, self.model)

        def look(_module: Any, _args: Any, told: dict[str, Any]) -> None:
            self.seen.append(len(told["input_ids"]))
            does(told["input_ids"])

        loaded._model.register_forward_pre_hook(look, with_kwargs=True)

    def line(self) -> CallQueue:
        return self.served.worker._lines[self.model]

    def await_piece(self, task_id: str) -> None:
        chunks = self.served.runner.chunks
        with self.spoken:
            assert self.spoken.wait_for(lambda: chunks.get(task_id), LIMIT_S)

    def close(self) -> None:
        self._threads.shutdown()
        self._main.shutdown()


@pytest.fixture
def share(serve: Serve) -> Iterator[Callable[..., Shared]]:
    made: list[Shared] = []

    def make(model: str, **params: Any) -> Shared:
        shared = Shared(serve(model, **params), model)
        emit = shared.served.runner.emit

        def emit_and_tell(task_id: str, attempt: int, value: Any) -> None:
            with shared.spoken:
                emit(task_id, attempt, value)
                shared.spoken.notify_all()

        shared.served.runner.emit = emit_and_tell  # type: ignore[method-assign]
        made.append(shared)
        return shared

    yield make
    for shared in made:
        shared.close()


def plainly(serve: Serve, asks: list[dict[str, Any]]) -> list[Any]:
    served = serve("writer")
    return [served.ask("generate", "writer", ask) for ask in asks]


def results(asked: list[Future[Any]]) -> list[Any]:
    return [each.result(LIMIT_S) for each in asked]


def test_texts_are_the_same_together_as_one_by_one(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    from corral.worker.inference.text.continuous_batching import GenerationLoop

    shared = share("writer")
    asked = [shared.ask(f"t{i}-", ask) for i, ask in enumerate(ASKS)]
    assert results(asked) == plainly(serve, ASKS)
    assert isinstance(shared.line(), GenerationLoop)
    assert "".join(shared.served.runner.chunks["t5-"]) == asked[5].result()["text"]


def test_the_items_of_a_batch_join_like_any_others(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    shared = share("writer")
    asked = [shared.ask("a", *ASKS[:3]), shared.ask("b", *ASKS[3:])]
    first, second = results(asked)
    assert first + second == plainly(serve, ASKS)


def test_who_comes_later_is_answered_while_a_long_text_goes_on(
    share: Callable[..., Shared],
) -> None:
    shared = share("novelist", max_batch_tokens=1 << 20)
    long = shared.ask("long", {"prompt": "on", "max_tokens": 100_000, "stream": True})
    shared.await_piece("long")
    short = shared.ask("short", {"prompt": "hello", "max_tokens": 5})
    assert short.result(LIMIT_S)["tokens"] == 5
    assert not long.done()
    shared.served.runner.cancelled.add("long")
    assert long.result(LIMIT_S)["finish_reason"] == "cancelled"


def test_cancel_frees_a_row_and_the_others_go_on(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    shared = share("novelist", max_batch_tokens=1 << 20)
    ask = {"prompt": "on", "max_tokens": 100_000, "stream": True}
    ids = ("one", "two")
    long = {i: shared.ask(i, ask) for i in ids}
    for i in ids:
        shared.await_piece(i)
    shared.hook(lambda _: None)
    shared.served.runner.cancelled.add("one")
    assert long["one"].result(LIMIT_S)["finish_reason"] == "cancelled"
    assert not long["two"].done()
    shared.served.runner.cancelled.add("two")
    assert long["two"].result(LIMIT_S)["finish_reason"] == "cancelled"
    assert shared.seen[-1] == 1


def test_no_more_rows_than_the_limit_and_the_rest_waits_its_turn(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    shared = share("writer", max_batch=2)
    shared.hook(lambda _: None)
    asked = [shared.ask(f"t{i}-", ask) for i, ask in enumerate(ASKS)]
    assert results(asked) == plainly(serve, ASKS)
    assert max(shared.seen) <= 2


def test_a_call_that_is_cancelled_in_the_line_never_starts(
    share: Callable[..., Shared],
) -> None:
    shared = share("novelist", max_batch=1, max_batch_tokens=1 << 20)
    long = shared.ask("long", {"prompt": "on", "max_tokens": 100_000, "stream": True})
    shared.await_piece("long")
    shared.served.runner.cancelled.add("waits")
    waits = shared.ask("waits", {"prompt": "hello", "max_tokens": 50})
    answer = waits.result(LIMIT_S)
    assert (answer["finish_reason"], answer["tokens"]) == ("cancelled", 0)
    shared.served.runner.cancelled.add("long")
    long.result(LIMIT_S)


def test_after_a_short_text_longer_ones_are_still_written_together(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    shared = share("writer")
    shared.served.worker._loaded.use("writer").peaks.learn(1, 5, 5.0)
    shared.hook(lambda _: None)
    assert shared.ask("t", *ASKS).result(LIMIT_S) == plainly(serve, ASKS)
    assert shared.seen[0] == len(ASKS)


def test_more_rows_come_in_once_those_there_have_shown_what_they_take(
    share: Callable[..., Shared],
) -> None:
    """Half of it is there whatever the size, which one row alone does not show."""
    from corral.worker.inference.text.continuous_batching import GenerationLoop

    shared, peaks = share("writer"), Peaks()
    loaded = text_model(shared.served, "writer")
    loop: GenerationLoop

    @contextmanager
    def watch(note: Callable[[float], None]) -> Iterator[Callable[[], None]]:
        def look() -> None:
            note(20.0 + loop._most[1] / 10)

        yield look
        look()

    peaks.learn(1, 30, 23.0)
    gauge = BatchMemory(peaks, lambda: 46.0, watch)
    main = ThreadPoolExecutor(1)
    means = BatchRules(BatchLimits(), ModelSpeed(), lambda: None, gauge)
    loop = GenerationLoop(loaded, means, main.submit)  # type: ignore[arg-type]
    shared.hook(lambda _: None)
    asks = [ModelCall(Generate(prompt="a", max_tokens=20)) for _ in range(8)]
    answers = [answer for _, answer in loop.answers(asks)]
    main.shutdown()
    assert all(isinstance(answer, dict) for answer in answers)
    assert shared.seen[0] < 4
    assert max(shared.seen) > shared.seen[0]


def test_rows_that_do_not_fit_into_memory_go_on_in_halves(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    shared = share("writer")

    def refuse(ids: torch.Tensor) -> None:
        if len(ids) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    shared.hook(refuse)
    assert shared.ask("t", *ASKS).result(LIMIT_S) == plainly(serve, ASKS)
    assert max(shared.seen) > 2
    assert shared.seen[-1] <= 2


def test_what_does_not_fit_even_alone_fails_as_out_of_memory(
    share: Callable[..., Shared],
) -> None:
    shared = share("writer")

    def refuse(ids: torch.Tensor) -> None:
        if ids.shape[1] > WIDE or len(ids) > 1:
            raise RuntimeError("CUDA out of memory")

    shared.hook(refuse)
    fine, large = shared.ask("fine", ASKS[0]), shared.ask("large", LONG)
    assert fine.result(LIMIT_S)["tokens"] == 40
    with pytest.raises(Failure) as caught:
        large.result(LIMIT_S)
    assert caught.value.kind == "out_of_memory"


def test_what_breaks_a_step_fails_alone_and_the_others_are_answered(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    shared = share("writer")

    def refuse(ids: torch.Tensor) -> None:
        if ids.shape[1] > WIDE:
            raise ValueError("nobody can read this")

    shared.hook(refuse)
    broken, *fine = [shared.ask(f"t{i}-", a) for i, a in enumerate([LONG, *ASKS])]
    with pytest.raises(ValueError, match="nobody can read this"):
        broken.result(LIMIT_S)
    assert results(fine) == plainly(serve, ASKS)


def test_a_call_that_is_refused_is_nobody_elses_trouble(
    share: Callable[..., Shared],
) -> None:
    shared = share("writer")
    fine = shared.ask("fine", ASKS[0])
    with pytest.raises(Failure, match="tokens"):
        shared.ask("long", {"prompt": "x" * 500}).result(LIMIT_S)
    assert fine.result(LIMIT_S)["tokens"] == 40


def test_a_text_that_was_begun_before_goes_on_to_the_same_end(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    ask = {**ASKS[2], "stream": True}
    whole = serve("writer")
    answer = whole.ask("generate", "writer", ask)
    pieces = whole.runner.pieces["t"]
    shared = share("writer")
    shared.served.emitted_of["again"] = pieces[:5]
    asked = [shared.ask("again", ask), shared.ask("other", ASKS[0])]
    assert results(asked)[0] == answer
    assert shared.served.runner.pieces["again"] == pieces[5:]


def test_a_model_that_takes_no_rows_answers_in_whole_batches(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    plain, shared = serve("writer"), share("writer")
    asks = ASKS[:3]
    plain.worker.load_model("writer")
    for worker in (plain.worker, shared.served.worker):
        loaded: Any = worker._loaded.loaded("writer")
        loaded._model.generation_config.no_repeat_ngram_size = 2
    asked = [shared.ask(f"t{i}-", ask) for i, ask in enumerate(asks)]
    expected = [plain.ask("generate", "writer", ask) for ask in asks]
    assert results(asked) == expected
    assert type(shared.line()) is CallQueue


def test_only_models_that_keep_all_they_have_read_take_rows() -> None:
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        MistralConfig,
        MistralForCausalLM,
    )

    from corral.worker.inference.text.kv_cache import takes_rows

    plain, odd = (LlamaForCausalLM(LlamaConfig(**SHAPE)) for _ in range(2))
    odd.generation_config.no_repeat_ngram_size = 3
    windowed = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=8))
    assert [takes_rows(model) for model in (plain, odd, windowed)] == [1, 0, 0]


def test_calls_of_other_kinds_are_gathered_from_all_lanes(
    serve: Serve, share: Callable[..., Shared]
) -> None:
    shared = share("reader")
    texts = [{"text": word} for word in ("the quick", "a herd", "sailor", "night")]
    asked = [shared.ask(f"t{i}-", t, kind="embed") for i, t in enumerate(texts)]
    alone = serve("reader")
    for answer, text in zip(results(asked), texts, strict=True):
        expected = alone.ask("embed", "reader", text)
        assert answer["embeddings"][0] == pytest.approx(
            expected["embeddings"][0], abs=1e-5
        )
    assert type(shared.line()) is CallQueue

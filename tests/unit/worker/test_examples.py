from __future__ import annotations

from collections.abc import Callable

from corral.wire.orders import Item
from tests.unit.worker.conftest import Bench, item, value

MakeBench = Callable[..., Bench]


def test_primes_are_counted(bench: MakeBench) -> None:
    worker = bench("examples.workers:PrimesWorker")
    counts = [value(o)["primes"] for o in worker.run(*map(upto, (0, 1, 2, 10, 9973)))]
    assert counts == [0, 0, 1, 4, 1229]


def upto(number: int) -> Item:
    return item({"upto": number})


def test_words_are_counted_many_texts_at_once(bench: MakeBench) -> None:
    worker = bench("examples.workers:WordCountWorker", top=1)
    good, bad = worker.run(item({"text": "a rose is a rose"}), item({"no": "text"}))
    assert value(good) == {"words": 5, "top": [["a", 2]]}
    assert bad.error is not None
    assert bad.error.message.startswith("ValueError: this worker needs a payload")


def test_flaky_one_fails_its_first_try_only(bench: MakeBench) -> None:
    worker = bench("examples.workers:FlakyWorker")
    again = item({})
    again.attempt = 2
    first, second = worker.run(item({}), again)
    assert (first.kind, value(second)) == ("failed", {"attempt": 2})

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from corral.errors import WorkerError
from corral.wire.orders import AttemptError, AttemptOutcome
from corral.worker import EchoWorker
from corral.worker.base import Lost
from corral.worker.runner import invoke
from tests.unit.worker import sample_workers
from tests.unit.worker.conftest import item, value


def run(worker: Any, payload: Any) -> AttemptOutcome:
    outcome, _ = invoke.run_one(invoke.bind(worker), item(payload))
    return outcome


@pytest.mark.spec("E12")
def test_echo_answers_in_the_envelope_and_the_task_gets_the_bare_output() -> None:
    assert EchoWorker()._run({"message": "hi", "delay": 0.001}) == {
        "status": "completed",
        "output": {"echoed": "hi"},
    }
    assert value(run(EchoWorker(), {"message": "hi"})) == {"echoed": "hi"}


@pytest.mark.parametrize("payload", [{}, "hi", None, {"massage": 1}])
def test_echo_without_a_message_says_what_it_needs(payload: Any) -> None:
    outcome = run(EchoWorker(), payload)
    assert outcome.error is not None
    assert '{"message": "hello"}' in outcome.error.message


@pytest.mark.spec("E11")
@pytest.mark.parametrize(
    ("envelope", "message"),
    [
        ({"status": "failed", "output": {"error": "disk full"}}, "disk full"),
        ({"status": "error", "output": "out of memory"}, "out of memory"),
        ({"status": "failed", "output": {}, "message": "why"}, "why"),
        ({"status": "failed"}, "answered that the task failed"),
        ({"status": "perhaps", "output": 1}, "must be completed, failed or error"),
    ],
)
def test_envelope_that_is_not_completed_fails_the_task(
    envelope: dict[str, Any], message: str
) -> None:
    outcome = run(sample_workers.Enveloped(), envelope)
    assert outcome.kind == "failed"
    assert outcome.error is not None
    assert message in outcome.error.message
    assert outcome.error.traceback is None


@pytest.mark.parametrize("is_final", [False, True])
def test_a_failure_says_whether_another_attempt_could_succeed(is_final: bool) -> None:
    outcome = run(sample_workers.Shows(), {"final": is_final})
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.is_final) == ("exit", is_final)


def test_a_failure_that_may_be_mended_travels_without_a_word_about_it() -> None:
    told = msgspec.json.decode(msgspec.json.encode(AttemptError("exit", "no luck")))
    assert told == {"kind": "exit", "message": "no luck"}
    assert not msgspec.convert(told, AttemptError).is_final


def test_a_payload_that_is_not_json_fails_for_good() -> None:
    odd = item(None)
    odd.payload = msgspec.Raw(b"{")
    outcome, _ = invoke.run_one(invoke.bind(EchoWorker()), odd)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.is_final) == ("bad_payload", True)


@pytest.mark.parametrize("bare", [None, 3, "text", [1], {"output": 1}])
def test_answer_without_a_status_is_the_output_itself(bare: Any) -> None:
    assert value(run(sample_workers.Enveloped(), bare)) == bare


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("nan", "float"),
        ("deep inf", "float"),
        ("object", "no form for a value of type object"),
        ("surrogate", "lone surrogate"),
        ("loop", "contains itself"),
        ("large", "more than the 16777216 allowed"),
    ],
)
def test_result_that_cannot_be_kept_fails_the_task_clearly(
    which: str, words: str
) -> None:
    outcome = run(sample_workers.Returns(), which)
    assert outcome.kind == "failed"
    assert outcome.error is not None
    assert outcome.error.kind == "bad_result"
    assert words in outcome.error.message


@pytest.mark.parametrize(
    ("which", "expected"),
    [("big number", 2**80), ("none", None), ("numbers", [1.5, 2.5])],
)
def test_unusual_but_valid_results_are_kept(which: str, expected: Any) -> None:
    assert value(run(sample_workers.Returns(), which)) == expected


def test_traceback_shows_user_code_and_none_of_ours() -> None:
    outcome = run(sample_workers.Raises(), "bread")
    assert outcome.error is not None
    assert outcome.error.kind == "exception"
    assert outcome.error.message == "LookupError: no bread here"
    trace = outcome.error.traceback or ""
    assert "in _deeper" in trace
    assert "invoke.py" not in trace


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("exit", "SystemExit: 7"),
        ("interrupt", "KeyboardInterrupt"),
        ("rude", "_Rude: (its message cannot be shown)"),
        ("nul", "ValueError: a\\x00b\\ud800c"),
    ],
)
def test_whatever_is_raised_fails_only_the_task(which: str, message: str) -> None:
    outcome = run(sample_workers.Raises(), which)
    assert outcome.kind == "failed"
    assert outcome.error is not None
    assert outcome.error.message == message


def test_payload_with_odd_but_legal_text_arrives() -> None:
    odd = item(None)
    for text, expected in [(rb'"\u0000"', "\0"), (rb'"\ud800"', "\ud800")]:
        odd.payload = type(odd.payload)(text)
        assert invoke.decode_payload(odd.payload) == expected


@pytest.mark.parametrize("text", [b"NaN", b"1e400000", b"{", b""])
def test_payload_that_is_not_json_fails_the_task(text: bytes) -> None:
    bad = item(None)
    bad.payload = type(bad.payload)(text)
    outcome, _ = invoke.run_one(lambda payload: payload, bad)
    assert outcome.kind == "failed"
    assert outcome.error is not None
    assert outcome.error.kind in ("bad_payload", "bad_result")


def test_class_without_a_way_to_run_is_refused() -> None:
    with pytest.raises(WorkerError, match="none of run, _run, run_batch"):
        invoke.bind(sample_workers.Nothing())


def test_a_task_that_was_taken_away_is_lost_and_not_failed() -> None:
    def call(_: Any) -> Any:
        raise Lost("the engine went away")

    outcome, _ = invoke.run_one(call, item({}))
    assert outcome.kind == "lost"
    assert outcome.error is not None
    assert outcome.error.kind == "worker_died"


def test_one_of_a_batch_that_was_taken_away_is_lost_alone() -> None:
    class Split:
        def run_batch(self, payloads: list[Any]) -> list[Any]:
            return [payloads[0], Lost("the engine went away")]

    both = [item("a"), item("b")]
    settled = invoke.run_whole(Split(), both, lambda: 0.0, lambda place, outcome: None)
    assert settled is not None
    assert [outcome.kind for outcome in settled] == ["completed", "lost"]

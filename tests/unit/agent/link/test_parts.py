"""The agent's small parts: options, log files, errors, backoff, locks."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from corral import errors
from corral.agent import worker_option
from corral.agent.link.status_line import ObservedWorker
from corral.core.backoff import Backoff
from corral.core.nodes.worker import WorkerState
from corral.process import log_file
from corral.process.keep_alive import Tries
from corral.relay.manager_link import LinkAnswer


@pytest.mark.parametrize(
    ("text", "path", "types", "count"),
    [
        ("corral:EchoWorker", "corral:EchoWorker", ["echo"], 1),
        ("corral.EchoWorker", "corral.EchoWorker", ["echo"], 1),
        ("a.b:RunScriptWorker", "a.b:RunScriptWorker", ["run_script"], 1),
        ("a.b:C=double", "a.b:C", ["double"], 1),
        ("a.b:C=double,halve", "a.b:C", ["double", "halve"], 1),
        ("a.b:Cx4", "a.b:C", ["c"], 4),
        ("a.b:C=doublex12", "a.b:C", ["double"], 12),
        ("a.b:C=fox2x1", "a.b:C", ["fox2"], 1),
        ("a:Worker", "a:Worker", ["worker"], 1),
    ],
)
def test_a_worker_option_names_class_job_types_and_runners(
    text: str, path: str, types: list[str], count: int
) -> None:
    assert worker_option.parse(text) == {
        "name": types[0],
        "worker_class": path,
        "job_types": types,
        "params": {},
        "concurrency": count,
    }


@pytest.mark.parametrize(
    ("text", "types", "count", "gpus"),
    [
        ("a:B,gpus=1", ["b"], 1, "1"),
        ("a:B=x,yx2,gpus=gpu:0,gpu:1", ["x", "y"], 2, "gpu:0,gpu:1"),
    ],
)
def test_a_worker_option_may_ask_for_cards(
    text: str, types: list[str], count: int, gpus: str
) -> None:
    told = worker_option.parse(text)
    assert (told["job_types"], told["concurrency"], told["gpus"]) == (
        types,
        count,
        gpus,
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "EchoWorker", "a:B=", "a:B=bad name", "a:Bx0", "a b:C", "a:B:C"),
        *("a:B,gpus=", "a:B,gpus=all", "a:B=x,gpu=1"),
    ],
)
def test_a_worker_option_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidField):
        worker_option.parse(text)


def test_workers_of_one_job_type_get_names_of_their_own() -> None:
    specs = worker_option.parse_all(["a:EchoWorker", "b:C=echo", "c:D=echo"])
    assert [spec.name for spec in specs] == ["echo", "echo-2", "echo-3"]


def test_a_log_over_its_limit_is_set_aside_while_its_writer_goes_on(
    tmp_path: Path,
) -> None:
    path = log_file.log_path(tmp_path / "logs", "w")
    with log_file.open_log(path) as log:
        log.write(b"old\n" * 100)
        assert not log_file.rotate(path, 1000)
        assert log_file.rotate(path, 100)
        log.write(b"new\n")
    assert path.read_bytes() == b"new\n"
    older = path.with_name("w.log.1")
    assert older.read_bytes() == b"old\n" * 100
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(older.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "a\x00b"])
def test_no_worker_name_leads_out_of_the_log_folder(tmp_path: Path, name: str) -> None:
    assert log_file.log_path(tmp_path, name).parent == tmp_path


def test_the_last_line_is_of_this_life_and_not_of_the_one_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "w.log"
    path.write_text("before\n")
    assert log_file.last_line(path, path.stat().st_size) == ""
    with path.open("a") as file:
        file.write("one\ntwo\n\n")
    assert log_file.last_line(path, len("before\n")) == "two"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (409, {"error": {"code": "conflict", "message": "m"}}, errors.Conflict),
        (503, {"error": {"code": "not_leader", "message": "m"}}, errors.NotLeader),
        (401, {"detail": "by a proxy"}, errors.Unauthenticated),
        (502, None, errors.Unavailable),
        (418, None, errors.BadRequest),
    ],
)
def test_an_error_answer_is_raised_as_what_it_stands_for(
    status: int, body: object, kind: type[errors.CorralError]
) -> None:
    content = b"<html>" if body is None else json.dumps(body).encode()
    error = LinkAnswer("http://m/x", status, content).error()
    assert type(error) is kind
    assert error.status == status


def test_delays_double_up_to_their_cap_and_start_over() -> None:
    tries = Tries(Backoff(0.5, 30.0, jitter=0.0))
    assert [tries.next_s() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    tries.reset()
    assert tries.next_s() == 0.5


def test_tasks_coming_and_going_are_no_news_but_a_broken_worker_is() -> None:
    ready = ObservedWorker(WorkerState.READY, "i1", pid=os.getpid())
    busy = ready.heard(b'{"state":"busy","incarnation":"i1","held":[["t",1]]}')
    assert busy.held == (("t", 1),)
    assert not busy.is_news(ready)
    assert ready.heard(b'{"state":"error","incarnation":"i1"}').is_news(ready)


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"3", b"{}", b'{"state":"odd"}', b'{"state":"busy","held":3}']
)
def test_a_line_that_is_no_status_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        ObservedWorker().heard(line)


def test_a_worker_that_names_no_number_has_the_given_one() -> None:
    specs = worker_option.parse_all(["a:EchoWorker", "b:Cx2"], concurrency=3)
    assert [spec.concurrency for spec in specs] == [3, 2]

"""Functions as tasks, against a manager that says what the test tells it to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import corral
from corral import errors
from corral.client import Client
from corral.client.functions.map import CHUNK, WINDOW
from tests.unit.client.sample_code import DOUBLE, HEAD, trees
from tests.unit.client.stand_in import (
    Answer,
    Seen,
    StandIn,
    fault,
    submitted,
    task_out,
)


class Mill:
    """Takes batches and gives back results: twice the argument, or a failure."""

    def __init__(
        self, manager: StandIn, work: Callable[[Any], Any] = lambda args: 2 * args[0]
    ) -> None:
        self._work = work
        self.args: dict[str, Any] = {}
        self.ended: set[str] = set()
        self.most = 0
        self.slow: set[str] = set()
        manager.on("POST /tasks/batch", self.accept)
        manager.on("POST /tasks/collect", self.collect)

    def accept(self, seen: Seen) -> Answer:
        tasks = seen.json["tasks"]
        for task in tasks:
            self.args[task["task_id"]] = task["parameters"]["args"]
        self.most = max(self.most, len(self.args) - len(self.ended))
        ids = [task["task_id"] for task in tasks]
        return Answer({"task_ids": ids, "errors": []}, 201)

    def collect(self, seen: Seen) -> Answer:
        asked = seen.json["task_ids"]
        # Every third one is late the first time somebody asks.
        late = {i for n, i in enumerate(asked) if n % 3 == 0} - self.slow
        self.slow |= late
        done = [i for i in asked if i not in late]
        self.ended |= set(done)
        tasks = [self._task(i) for i in done]
        return Answer({"tasks": tasks, "pending": sorted(late), "unknown": []})

    def _task(self, task_id: str) -> dict[str, Any]:
        if self.args[task_id] == ["bad"]:
            error = {"kind": "exception", "message": "ValueError: bad"}
            error["traceback"] = "Traceback ...\n  the line\nValueError: bad"
            return task_out(task_id, "failed", error=error)
        return task_out(task_id, result=self._work(self.args[task_id]))


def test_called_it_is_the_function_it_was(load: Callable[..., Any]) -> None:
    double = load().double
    assert double(4) == 8
    assert (double.__name__, double.__wrapped__(1)) == ("double", 2)
    corral.progress(1, 2, "nobody listens here")


def test_submit_sends_the_code_once_and_names_it_in_every_task(
    load: Callable[..., Any],
    manager: StandIn,
    client: Client,
    objects: dict[str, bytes],
    tmp_path: Path,
) -> None:
    manager.on("POST /tasks", Answer(submitted("t1"), 201))
    module = load()
    double = module.double.using(client)
    assert [double.submit(1).task_id, double.submit(x=2).task_id] == ["t1", "t1"]
    [(digest, files)] = trees(objects).items()
    first, second = (seen.json for seen in manager.asked("POST /tasks"))
    assert first["parameters"] == {
        "archive": digest,
        "path": "",
        "module": module.__name__,
        "function": "double",
        "args": [1],
        "kwargs": {},
    }
    assert second["parameters"]["kwargs"] == {"x": 2}
    assert (first["task_type"], first["retries"], first["timeout"]) == (
        "function",
        2,
        5,
    )
    assert first["labels"] == {"function": f"{module.__name__}.double"}
    assert files == {f"{module.__name__}.py": DOUBLE.encode()}
    # Its files as any object, and the list of them as code.
    assert len(manager.asked("POST /objects")) == 1
    assert len(manager.asked(f"PUT /objects/{digest}")) == 1


def test_code_the_manager_has_is_not_sent(
    load: Callable[..., Any],
    manager: StandIn,
    client: Client,
    objects: dict[str, bytes],
) -> None:
    manager.on("POST /tasks", Answer(submitted("t1"), 201))
    module = load()
    client.upload(Path(module.__file__).parent)
    known = dict(objects)
    manager.seen.clear()
    module.double.using(client).submit(1)
    assert objects == known
    assert not manager.asked("POST /objects")


def test_project_folder_travels_whole_and_its_ignored_files_stay(
    load: Callable[..., Any],
    manager: StandIn,
    client: Client,
    objects: dict[str, bytes],
    tmp_path: Path,
) -> None:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.any]\n")
    (root / ".gitignore").write_text("secret\n")
    (root / "secret").write_text("no")
    manager.on("POST /tasks", Answer(submitted(), 201))
    load(DOUBLE, "project/src").double.using(client).submit(1)
    assert manager.asked("POST /tasks")[0].json["parameters"]["path"] == "src"
    [files] = trees(objects).values()
    assert "pyproject.toml" in files
    assert "secret" not in files


def test_handle_gives_result_status_and_cancel(
    load: Callable[..., Any], manager: StandIn, client: Client, objects: Any
) -> None:
    manager.on("POST /tasks", Answer(submitted("t1"), 201))
    manager.on("GET /tasks/t1", task_out("t1", result=[1]))
    manager.on("POST /tasks/t1/cancel", {})
    handle = load().double.using(client).submit(1)
    assert (handle.result(timeout=5), handle.status()) == ([1], "completed")
    handle.cancel()
    assert manager.asked("POST /tasks/t1/cancel")
    assert client.get_task(handle).result == [1]


async def test_async_twins_do_the_same(
    load: Callable[..., Any], manager: StandIn, client: Client, objects: Any
) -> None:
    manager.on("POST /tasks", Answer(submitted("t1"), 201))
    manager.on("GET /tasks/t1", task_out("t1", result=[1]))
    manager.on("POST /tasks/t1/cancel", {})
    Mill(manager)
    double = load().double.using(client)
    handle = await double.asubmit(1)
    assert (await handle.aresult(5), await handle.astatus()) == ([1], "completed")
    await handle.acancel()
    assert [value async for value in double.amap(range(5))] == [0, 2, 4, 6, 8]


def test_failure_shows_the_traceback_of_the_task(
    load: Callable[..., Any], manager: StandIn, client: Client, objects: Any
) -> None:
    told = {"kind": "exception", "message": "ValueError: no", "traceback": "the line"}
    manager.on("POST /tasks", Answer(submitted("t1"), 201))
    manager.on("GET /tasks/t1", task_out("t1", "failed", error=told))
    with pytest.raises(errors.TaskFailed, match="ValueError: no") as caught:
        load().double.using(client).submit(1).result()
    assert (caught.value.kind, caught.value.traceback) == ("exception", "the line")
    assert caught.value.__notes__ == ["In the task:\nthe line"]


def test_options_pass_through_and_can_be_changed_per_call(
    load: Callable[..., Any], manager: StandIn, client: Client, objects: Any
) -> None:
    manager.on("POST /tasks", Answer(submitted(), 201))
    text = (
        "@corral.task(gpu_memory_mb=8000, job_type='train', priority='high',"
        " labels={'team': 'blue'})\ndef fit(x):\n    return x\n"
    )
    fit = load(HEAD + text).fit.using(client)
    fit.submit(1)
    fit.options(priority=7, labels={"run": "9"}, depends_on=["t0"]).submit(1)
    first, second = (seen.json for seen in manager.asked("POST /tasks"))
    assert (first["task_type"], first["priority"]) == ("train", "high")
    assert first["labels"].items() >= {"team": "blue", "gpu_memory_mb": "8000"}.items()
    assert (second["priority"], second["depends_on"]) == (7, ["t0"])
    assert second["labels"].items() >= {"team": "blue", "run": "9"}.items()


def test_unknown_type_is_made_known_and_the_call_sent_again(
    load: Callable[..., Any], manager: StandIn, client: Client, objects: Any
) -> None:
    refused = fault("unknown_task_type", 422)
    manager.on("POST /tasks", refused, Answer(submitted("t1"), 201))
    manager.on("POST /job-types", Answer({}, 201))
    assert load().double.using(client).submit(1).task_id == "t1"
    assert manager.asked("POST /job-types")[0].json["name"] == "function"


def test_map_keeps_the_order_and_feeds_no_more_than_its_window(
    load: Callable[..., Any], manager: StandIn, client: Client, objects: Any
) -> None:
    mill = Mill(manager)
    double = load().double.using(client)
    taken = itertools.count()
    results = double.map(next(taken) for _ in itertools.repeat(None))
    assert next(taken) == 0  # nothing is read before a result is asked for
    some = list(itertools.islice(results, 3 * CHUNK))
    assert some == [2 * n for n in range(1, 3 * CHUNK + 1)]
    assert mill.most <= WINDOW
    results.close()
    assert next(taken) <= 3 * CHUNK + 2 * WINDOW


def test_map_hands_out_results_as_they_come_when_asked_to(
    load: Callable[..., Any], manager: StandIn, client: Client, objects: Any
) -> None:
    Mill(manager)
    double = load().double.using(client)
    got = list(double.map(range(30), ordered=False))
    assert sorted(got) == [2 * n for n in range(30)]
    assert got != sorted(got)


def test_map_pairs_up_its_iterables(
    load: Callable[..., Any], manager: StandIn, client: Client, objects: Any
) -> None:
    Mill(manager, lambda args: sum(args))
    add = load(HEAD + "@corral.task\ndef add(x, y):\n    return x + y\n").add
    assert list(add.using(client).map([1, 2], itertools.repeat(5))) == [6, 7]


def test_map_raises_a_failure_in_its_turn_or_hands_it_out(
    load: Callable[..., Any], manager: StandIn, client: Client, objects: Any
) -> None:
    Mill(manager)
    double = load().double.using(client)
    results = double.map([1, "bad", 3])
    assert next(results) == 2
    with pytest.raises(errors.TaskFailed, match="ValueError: bad") as caught:
        next(results)
    assert "the line" in caught.value.__notes__[0]
    one, failed, three = double.map([1, "bad", 3], keep_errors=True)
    assert (one, three) == (2, 6)
    assert isinstance(failed, errors.TaskFailed)

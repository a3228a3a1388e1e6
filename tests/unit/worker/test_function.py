"""Functions on real runners: one bundle a process, and marked functions only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from corral.errors import BadRequest
from corral.files.archive import pack, unpack
from corral.wire.agent import TimeLimits
from corral.wire.orders import Item
from corral.worker.manager_link import Away
from corral.worker.pool.bundle_pool import SPARE, BundlePool
from corral.worker.pool.code_bundle import FUNCTION_WORKER, STANDARD_WORKER, Bundle
from corral.worker.pool.runner_process import RunnerSpec
from tests.unit.worker.standin_manager import make_order, order_item
from tests.unit.worker.supervisor.test_order_desk import Office
from tests.unit.worker.warm_runners import launch

HEAD = "import os, time, corral\n\n@corral.task\n"


class Depot:
    """Archives by digest, and recipes that unpack them; counts what is held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._archives: dict[str, bytes] = {}
        self.held: list[Bundle] = []
        self.away = 0

    def put(self, name: str, **files: str) -> str:
        place = self._folder / "sources" / name
        for file, text in files.items():
            path = place / f"{file.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        data = pack(place)
        digest = hashlib.sha256(data).hexdigest()
        self._archives[digest] = data
        return digest

    def recipe_of(self, bundle: Bundle) -> _Recipe:
        return _Recipe(self, bundle)

    def fetch(self, bundle: Bundle) -> Path:
        if self.away:
            self.away -= 1
            raise Away("the manager does not answer")
        if bundle.digest not in self._archives:
            raise BadRequest("there is no such object")
        place = self._folder / "unpacked" / bundle.digest
        if not place.exists():
            unpack(self._archives[bundle.digest], place)
        return place / bundle.path


class _Recipe:
    def __init__(self, depot: Depot, bundle: Bundle) -> None:
        self._depot = depot
        self._bundle = bundle

    def make(self) -> RunnerSpec:
        folder = self._depot.fetch(self._bundle)
        self._depot.held.append(self._bundle)
        params = {"archive": self._bundle.digest, "path": self._bundle.path}
        return RunnerSpec(FUNCTION_WORKER, params, folder=folder, launch=launch)

    def close(self) -> None:
        if self._bundle in self._depot.held:
            self._depot.held.remove(self._bundle)


class Shop(Office):
    """A desk whose pool takes bundles."""

    def __init__(self, depot: Depot, size: int = 1) -> None:
        self.depot = depot
        self._size = size
        self._orders = 0
        super().__init__(STANDARD_WORKER, TimeLimits())

    def make_pool(self, spec: RunnerSpec) -> BundlePool:
        return BundlePool(
            spec, self._size, lambda: None, self.depot.recipe_of, {"echo"}
        )

    def run(self, *items: Item) -> list[Any]:
        """Results or faults in the order of the items; what comes back goes again."""
        told: dict[str, Any] = {}
        left = list(items)
        while left:
            for item, outcome in zip(left, self.try_once(*left), strict=True):
                told[item.task_id] = outcome
            left = [
                replace(item, attempt=item.attempt + 1)
                for item in left
                if told[item.task_id] == "returned"
            ]
        return [told[item.task_id] for item in items]

    def try_once(self, *items: Item) -> list[Any]:
        self._orders += 1
        self.desk.serve(make_order(*items, order_id=f"o-{self._orders}"))
        ended = self.manager.wait_outcome
        return [_told(ended(item.task_id, item.attempt)) for item in items]


def _told(outcome: dict[str, Any]) -> Any:
    return outcome.get("result", outcome.get("error", outcome["kind"]))


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return Depot(tmp_path)


@pytest.fixture
def shop(depot: Depot) -> Iterator[Shop]:
    made = Shop(depot)
    yield made
    made.close()


@pytest.fixture
def calls() -> Callable[..., Item]:
    count = iter(range(10_000))

    def call(digest: str, *args: Any, **more: Any) -> Item:
        payload = {
            "archive": digest,
            "module": more.pop("module", "job"),
            "function": more.pop("function", "run"),
            "path": more.pop("path", ""),
            "args": args,
        }
        return order_item(f"t{next(count)}", payload, **more)

    return call


Calls = Callable[..., Item]


def test_two_versions_of_one_file_never_mix(shop: Shop, calls: Calls) -> None:
    body = HEAD + "def run(x):\n    import part\n    return [part.NAME, x, os.getpid()]"
    old = shop.depot.put("old", job=body, part="NAME = 'old'")
    new = shop.depot.put("new", job=body, part="NAME = 'new'")
    mixed = shop.run(*(calls(each, n) for n, each in enumerate([old, new] * 4)))
    assert [(name, x) for name, x, _ in mixed] == [
        (("old", "new")[n % 2], n) for n in range(8)
    ]
    turns = [shop.run(calls(each, 0))[0] for each in (old, new, old, new)]
    assert [name for name, _, _ in turns] == ["old", "new", "old", "new"]
    # Both stay warm: nobody imports again what is still there.
    assert {pid for _, _, pid in mixed} == {pid for _, _, pid in turns}


def test_function_of_a_package_below_the_archives_root_is_found(
    shop: Shop, calls: Calls
) -> None:
    digest = shop.depot.put(
        "deep",
        src__pack____init__="",
        src__pack__job=HEAD
        + "def run(x):\n    from pack import more\n    return more.N",
        src__pack__more="N = 7",
    )
    assert shop.run(calls(digest, 1, module="pack.job", path="src")) == [7]


def test_coroutine_is_run_and_its_prints_arrive(shop: Shop, calls: Calls) -> None:
    body = "async def run(x):\n    print('hello')\n    return x + 1"
    assert shop.run(calls(shop.depot.put("async", job=HEAD + body), 41)) == [42]
    [log] = shop.manager.wait_for(
        lambda: [log for r in shop.manager.reports for log in r["logs"]]
    )
    assert log["lines"][0][1:] == ["stdout", "hello"]


def test_progress_is_told_while_the_function_runs(
    shop: Shop, calls: Calls, tmp_path: Path
) -> None:
    body = (
        "def run(go):\n    corral.progress(1, 4, 'a quarter')\n"
        "    while not os.path.exists(go):\n        time.sleep(0.01)\n"
        "    corral.progress(0, 0)"
    )
    go = tmp_path / "go"
    item = calls(shop.depot.put("slow", job=HEAD + body), str(go))
    serving = shop.serve_later(make_order(item))
    [progress] = shop.manager.wait_for(
        lambda: [p for r in shop.manager.reports for p in r["progress"]]
    )
    go.touch()
    serving.join()
    assert progress[2:] == [0.25, "a quarter"]
    assert shop.manager.wait_outcome(item.task_id)["kind"] == "completed"


def test_failure_has_the_traceback_of_the_users_code_alone(
    shop: Shop, calls: Calls
) -> None:
    digest = shop.depot.put("bad", job=HEAD + "def run(x):\n    return 1 // x")
    [fault] = shop.run(calls(digest, 0))
    assert fault["message"] == "ZeroDivisionError: integer division or modulo by zero"
    assert "return 1 // x" in fault["traceback"]
    assert "corral/worker" not in fault["traceback"]


def test_module_that_cannot_be_imported_fails_its_tasks_only(
    shop: Shop, calls: Calls
) -> None:
    bad = shop.depot.put("bad", job="import a_package_nobody_has")
    good = shop.depot.put("good", job=HEAD + "def run(x):\n    return x")
    fault, fine = shop.run(calls(bad, 1), calls(good, 1))
    assert "ModuleNotFoundError: No module named 'a_package" in fault["message"]
    assert "import a_package_nobody_has" in fault["traceback"]
    assert fine == 1
    assert shop.pool.error is None


@pytest.mark.parametrize(
    ("module", "function", "words"),
    [
        ("os", "system", "installed on the node under the same name"),
        ("subprocess", "run", "installed on the node under the same name"),
        ("job", "system", "has no task 'system'"),
        ("job", "plain", "has no task 'plain'"),
        ("job", "run.__wrapped__", "has no task"),
        ("job.deeper", "run", "No module named 'job.deeper'"),
        ("nowhere", "run", "has no module 'nowhere'"),
        ("", "run", "has no module ''"),
        (".job", "run", "has no module '.job'"),
    ],
)
def test_only_marked_functions_of_the_archive_are_called(
    shop: Shop, calls: Calls, module: str, function: str, words: str
) -> None:
    text = "from os import system\n" + HEAD + "def run(x):\n    return x\n\n"
    digest = shop.depot.put("own", job=text + "def plain(x):\n    return x")
    [fault] = shop.run(calls(digest, "true", module=module, function=function))
    assert words in fault["message"]


def test_script_that_submits_at_import_is_told_to_mind_its_main_part(
    shop: Shop, calls: Calls
) -> None:
    text = HEAD + "def run(x):\n    return x\n\nrun.submit(1)\n"
    [fault] = shop.run(calls(shop.depot.put("script", job=text), 1))
    assert "if __name__ == '__main__':" in fault["message"]


@pytest.mark.parametrize(
    "payload", [None, 7, {}, {"archive": 1}, {"archive": "x", "path": []}]
)
def test_payload_that_is_no_call_fails_with_a_word_on_how_it_should_be(
    shop: Shop, payload: Any
) -> None:
    [fault] = shop.run(order_item("odd", payload))
    assert "a function needs a payload like" in fault["message"]


def test_archive_nobody_has_fails_its_task_and_no_other(
    shop: Shop, calls: Calls
) -> None:
    good = shop.depot.put("good", job=HEAD + "def run(x):\n    return x")
    fault, fine = shop.run(calls("0" * 64, 1), calls(good, 2))
    assert fault["kind"] == "bad_code"
    assert "there is no such object" in fault["message"]
    assert fine == 2


def test_manager_away_for_a_moment_costs_no_task(shop: Shop, calls: Calls) -> None:
    shop.depot.away = 1
    digest = shop.depot.put("good", job=HEAD + "def run(x):\n    return x")
    assert shop.run(calls(digest, 3)) == [3]


def test_process_that_dies_is_replaced_and_keeps_its_code(
    shop: Shop, calls: Calls
) -> None:
    digest = shop.depot.put(
        "frail", job=HEAD + "def run(x):\n    return os._exit(3) if x else 'alive'"
    )
    fault, after = shop.run(calls(digest, 1)), shop.run(calls(digest, 0))
    assert fault[0]["kind"] == "worker_died"
    assert after == ["alive"]


def test_other_code_behind_a_long_task_is_handed_back(shop: Shop, calls: Calls) -> None:
    slow = shop.depot.put("slow", job=HEAD + "def run(x):\n    time.sleep(x)\n")
    other = shop.depot.put("other", job=HEAD + "def run(x):\n    return x")
    told = shop.try_once(calls(slow, 2.0), calls(other, 2))
    assert told == [None, "returned"]


def test_no_more_run_at_once_than_the_worker_has_room_for(
    shop: Shop, calls: Calls
) -> None:
    body = HEAD + "def run(x):\n    began = time.time()\n    time.sleep(0.3)\n"
    first, second = (
        shop.depot.put(n, job=f"{body}    return [began, time.time(), {n!r}]")
        for n in ("a", "b")
    )
    items = calls(first, 1), calls(second, 1)
    threads = [
        shop.serve_later(make_order(item, order_id=item.task_id)) for item in items
    ]
    for thread in threads:
        thread.join()
    spans = sorted(_told(shop.manager.wait_outcome(i.task_id)) for i in items)
    assert spans[0][1] <= spans[1][0]


def test_runners_of_code_out_of_use_are_ended(shop: Shop, calls: Calls) -> None:
    pool = shop.pool
    assert isinstance(pool, BundlePool)
    body = HEAD + "def run(x):\n    return os.getpid()"
    digests = [shop.depot.put(f"p{n}", job=f"{body} + {n} * 0") for n in range(6)]
    pids = [shop.run(calls(digest, 1))[0] for digest in digests]
    assert len(set(pids)) == 6
    # Its own runner, and one for each of the bundles used last.
    assert len(pool.pids) <= 1 + 1 + SPARE
    assert set(pids[-2:]) < set(pool.pids)
    pool.sweep(float("inf"))
    assert not set(pids) & set(pool.pids)
    assert shop.depot.held == []
    assert shop.run(calls(digests[0], 1))[0] not in pids


def test_standard_worker_echoes_too(shop: Shop) -> None:
    payload = {"message": "hi", "archive": "not code here"}
    item = Item("e1", 1, msgspec.Raw(msgspec.json.encode(payload)), "echo")
    assert shop.run(item) == [{"echoed": "hi"}]


def test_closing_worker_hands_back_what_has_not_started(
    shop: Shop, calls: Calls
) -> None:
    digest = shop.depot.put("good", job=HEAD + "def run(x):\n    return x")
    shop.desk.close()
    assert shop.try_once(calls(digest, 1)) == ["returned"]

"""The manager as a user or a node sees it, and what a machine is to a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from corral import __version__
from corral.agent.link.identity import Identity, save
from corral.doctor import manager, store
from corral.doctor import role as roles
from corral.doctor.check import CheckResult, CheckStatus
from corral.doctor.examine import plan
from corral.doctor.manager import ManagerFact, judge
from corral.embedded.folder import Folder, FolderState, save_state
from corral.process.spawn import ProcessIdentity, identity_of
from tests.unit.client.stand_in import StandIn, fault, serve

HEALTH = {"status": "healthy", "version": __version__, "timestamp": None}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("CORRAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CORRAL_API_KEY", "corral_k_s")


def told(home: Path, url: str, *, is_expected: bool = True) -> list[CheckResult]:
    fact = manager.look(url, home, is_expected=is_expected)
    return list(judge(fact, __version__))


def script(web: StandIn, **answers: Any) -> None:
    web.on("GET /health", HEALTH)
    web.on("GET /nodes", {"nodes": answers.get("nodes", [])})
    web.on("GET /workers", {"workers": answers.get("workers", [])})
    web.on("GET /tasks", {"tasks": answers.get("tasks", []), "next": None})


def test_nodes_workers_and_dead_letters_are_one_line_each(tmp_path: Path) -> None:
    nodes: list[dict[str, Any]] = [
        {"node_id": "n1", "hostname": "a", "status": "online", "version": "0.0.9"},
        {"node_id": "n2", "hostname": "b", "status": "offline", "version": "0.0.1"},
    ]
    bad = {"name": "H200", "health": "quarantined", "quarantine": {"reason": "xid_79"}}
    nodes[0]["gpus"] = [bad, {"name": "H200", "health": "ok"}]
    nodes[0] |= {"clock_skew_s": -7.0, "breakers": [{"key": "a:B", "state": "open"}]}
    failed = [{"worker_id": "w1", "name": "big", "status": "error"}]
    with serve() as web:
        script(web, nodes=nodes, workers=failed)
        lines = told(tmp_path, web.url)
    found = {line.name: line for line in lines}
    assert "kept from starting on node a: a:B" in [line.found for line in lines]
    assert found["clock"].found == "that of node a is 7 s behind the manager's"
    assert found["manager"].verdict is CheckStatus.OK
    assert found["nodes"].found == "1 of 2 do not answer: b"
    assert found["workers"].found == "1 in error: big"
    assert found["version"].verdict is CheckStatus.WARN
    assert found["gpu"].found == "H200 (xid_79) of node a is in quarantine"


def test_a_refused_key_and_a_stranger_on_the_port_are_one_line(tmp_path: Path) -> None:
    with serve() as web:
        web.on("GET /health", HEALTH)
        web.on("GET /nodes", fault("unauthenticated", 401, "this key is not known"))
        (line,) = told(tmp_path, web.url)
        assert "this key is not known" in line.found
        assert "CORRAL_API_KEY" in line.fix
        web.on("GET /health", "hello")
        (line,) = told(tmp_path, web.url)
        assert line.verdict is CheckStatus.PROBLEM
    (line,) = told(tmp_path, web.url)
    assert line.verdict is CheckStatus.PROBLEM
    assert f"cannot reach Corral at {web.url}" in line.found
    (line,) = told(tmp_path, web.url, is_expected=False)
    assert line.verdict is CheckStatus.WARN


def test_a_node_is_told_whether_its_credential_still_counts() -> None:
    with serve() as web:
        web.on("GET /health", HEALTH)
        web.on("GET /nodes/n1/desired", {"version": 1, "workers": []})
        who = Identity("n1", "corral_k_s", web.url)
        (line,) = judge(manager.look_as_node(who), __version__)
        assert "accepts node n1" in line.found
        web.on("GET /nodes/n1/desired", fault("unauthenticated", 401, "gone"))
        (line,) = judge(manager.look_as_node(who), __version__)
        assert "join again" in line.fix


def test_a_clock_far_off_is_a_problem() -> None:
    fact = ManagerFact("http://m", __version__, ahead_s=-3600.0)
    line = next(line for line in judge(fact, __version__) if line.name == "clock")
    assert line.found == "the manager is 3600 s behind this machine"


def test_a_folder_tells_what_the_machine_is(tmp_path: Path) -> None:
    assert roles.look(tmp_path).is_manager
    place = tmp_path / "agents" / "box"
    place.mkdir(parents=True)
    save(place, Identity("n1", "k", "http://m:1"))
    role = roles.look(tmp_path)
    assert not role.is_manager
    assert role.node_name == "box"
    names = [check.name for check in plan(home=tmp_path)]
    assert "manager" in names
    assert "database" not in names
    (tmp_path / "admin.key").touch()
    assert roles.look(tmp_path).is_manager


def test_who_has_the_folder_is_told(tmp_path: Path) -> None:
    def line() -> CheckResult:
        return roles.judge_holder(roles.look_holder(roles.look(tmp_path)))

    assert "nobody runs" in line().found
    me = identity_of(os.getpid())
    assert me is not None
    children = {"redis": me, "postgres": ProcessIdentity(1, 0.0)}
    save_state(Folder(tmp_path), FolderState(me, "http://m", "1", True, children))
    assert f"pid {me.pid}: redis" in line().found
    save_state(Folder(tmp_path), FolderState(me, "http://m", "1"))
    assert "starts or stops" in line().found
    save_state(
        Folder(tmp_path),
        FolderState(ProcessIdentity(1, 0.0), "http://m", "1", True, children),
    )
    assert "left redis behind" in line().found
    (tmp_path / "state.json").unlink()
    (tmp_path / "lock").write_text(str(os.getpid()))
    assert line().verdict is CheckStatus.WARN


def test_data_that_lack_a_part_are_broken(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    fresh = store.judge_at_rest(store.postgres_at_rest(folder))
    assert fresh.verdict is CheckStatus.OK
    data = tmp_path / "postgres" / "data"
    data.mkdir(parents=True)

    def broken() -> str:
        line = store.judge_at_rest(store.postgres_at_rest(folder))
        assert line.verdict is CheckStatus.PROBLEM
        return line.found

    assert "PG_VERSION" in broken()
    (data / "PG_VERSION").write_text("many")
    assert "no version in it" in broken()
    (data / "PG_VERSION").write_text("7")
    assert "made by PostgreSQL 7" in broken()
    (data / "PG_VERSION").write_text("18")
    assert "pg_control is missing" in broken()


def test_a_bad_setting_is_a_line_and_the_rest_of_the_machine_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CORRAL_PORT", "many")
    first, *others = plan()
    (line,) = first.run()
    assert line.verdict is CheckStatus.PROBLEM
    assert "CORRAL_PORT" in line.found
    assert {"memory", "git"} <= {check.name for check in others}

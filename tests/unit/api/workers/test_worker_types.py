"""Worker types: where their code comes from, and what each version is."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.unit.api.world import World, fault, said

GIT = {"repo_url": "https://git.example.org/a/b", "branch": "main"}
KIND = {"worker_name": "mine", "worker_class": "pkg:Class", "job_type": "echo"}


async def kinds(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await world.read.ask("/worker-types"))[
        "worker_types"
    ]
    return found


async def save(world: World, **more: Any) -> None:
    assert (await world.operate.post("/register_worker_type", KIND | more)).is_success


async def test_the_older_git_fields_and_an_environment_say_the_same(
    world: World,
) -> None:
    await save(world, git_repo_url=GIT["repo_url"], git_branch="main")
    [first] = await kinds(world)
    await save(world, environment={"git": GIT})
    [second] = await kinds(world)
    assert first["environment"]["git"] | GIT == first["environment"]["git"]
    assert (second["digest"], second["version"]) == (first["digest"], 1)


async def test_changed_content_is_a_new_version_under_its_own_digest(
    world: World,
) -> None:
    await save(world, worker_params={"a": 1})
    await save(world, worker_params={"a": 1})
    [one] = await kinds(world)
    await save(world, worker_params={"a": 2})
    [two] = await kinds(world)
    assert (one["version"], two["version"]) == (1, 2)
    for kind, params in ((one, {"a": 1}), (two, {"a": 2})):
        data = (await world.read.get(f"/objects/{kind['digest']}")).content
        assert hashlib.sha256(data).hexdigest() == kind["digest"]
        assert json.loads(data)["params"] == params


async def test_a_launch_takes_the_newest_version_or_the_one_it_names(
    world: World,
) -> None:
    await world.worker("echo")
    [node] = (await world.read.ask("/nodes"))["nodes"]
    await save(world, worker_params={"a": 1})
    await save(world, worker_params={"a": 2}, environment={"git": GIT})
    ids = {}
    for name in ("mine", "mine@1", "mine@2"):
        body = {"node_url": node["node_id"], "worker_type": name}
        ids[name] = (await world.operate.tell("/launch_worker", body))["launch_id"]
    specs = {
        name: world.manager.ctx.cluster.workers[worker_id].worker.spec
        for name, worker_id in ids.items()
    }
    assert specs["mine"].params == specs["mine@2"].params == {"a": 2}
    assert specs["mine@1"].params == {"a": 1}
    assert specs["mine@1"].environment is None
    assert specs["mine"].environment is not None
    for name, status, code in (
        ("mine@3", 404, "not_found"),
        ("mine@x", 422, "invalid_field"),
    ):
        body = {"node_url": node["node_id"], "worker_type": name}
        fault(await world.operate.post("/launch_worker", body), status, code)


async def test_nodes_are_told_the_entry_and_where_the_code_is(world: World) -> None:
    worker = await world.worker("echo")
    [node] = (await world.read.ask("/nodes"))["nodes"]
    await save(world, environment={"git": GIT})
    body = {"node_url": node["node_id"], "worker_type": "mine"}
    await world.operate.tell("/launch_worker", body)
    [kind] = await kinds(world)
    told = await worker.node.caller.ask(f"/nodes/{node['node_id']}/desired")
    [mine] = [w for w in told["workers"] if w["entry"]]
    assert mine["entry"] == kind["digest"]
    assert mine["environment"] == kind["environment"]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"git": GIT, "docker": {"image": "x"}},
        {"svn": {}},
        {"git": "text"},
        {"git": {}},
        {"git": {"repo_url": "--upload-pack=touch /tmp/x"}},
        {"git": {"repo_url": "ext::sh -c touch% /tmp/x"}},
        {"git": {"repo_url": "http://git.example.org/a"}},
        {"git": {"repo_url": "git://git.example.org/a"}},
        {"git": {"repo_url": "https://user:pass@git.example.org/a"}},
        {"git": {"repo_url": "ssh://-oProxyCommand=x/a"}},
        {"git": GIT | {"branch": "--orphan"}},
        {"git": GIT | {"branch": "a..b"}},
        {"git": GIT | {"commit": "HEAD"}},
        {"git": GIT | {"working_dir": "../.."}},
        {"git": GIT | {"project": "/etc"}},
        {"git": GIT | {"unknown": 1}},
        {"archive": {"digest": "x"}},
        {"docker": {"image": "-v"}},
        {"docker": {"image": "a", "volumes": [1]}},
    ],
)
async def test_a_source_that_could_do_harm_is_refused_by_name(
    world: World, environment: Any
) -> None:
    body = KIND | {"environment": environment}
    told = fault(
        await world.operate.post("/register_worker_type", body), 422, "invalid_field"
    )
    assert told["details"]["field"].startswith("environment")
    assert await kinds(world) == []


async def test_an_archive_that_was_not_uploaded_is_refused(world: World) -> None:
    body = KIND | {"environment": {"archive": {"digest": "0" * 64}}}
    fault(await world.operate.post("/register_worker_type", body), 404, "not_found")
    digest = hashlib.sha256(b"x").hexdigest()
    said(await world.operate.send("PUT", f"/objects/{digest}", content=b"x"))
    await save(world, environment={"archive": {"digest": digest}})

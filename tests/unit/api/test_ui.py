"""/ui: files for everybody, sessions in place of keys, links that sign in once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from corral.core.access.key import Scope
from corral.dashboard.asset import assets
from corral.manager.access.sessions import LIFE_S, LINK_S
from tests.unit.api.world import CONFIG, Caller, World, fault, running, said

PAGE = {"X-Corral-Page": "1"}


def bare(world: World) -> httpx.AsyncClient:
    """A browser of its own: it keeps cookies, and no key."""
    transport = httpx.ASGITransport(world.app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://corral")


@asynccontextmanager
async def signed_in(
    world: World, scope: Scope = Scope.ADMIN
) -> AsyncIterator[httpx.AsyncClient]:
    _, key = await world.manager.access.keys.create(scope, f"somebody-{scope}")
    async with bare(world) as http:
        headers = {"Authorization": f"Bearer {key}"}
        assert (await http.post("/ui/session", headers=headers)).status_code == 201
        yield http


async def test_the_root_leads_to_the_page_and_every_address_below_is_it(
    world: World,
) -> None:
    for path in ("/", "/ui"):
        answer = await world.nobody.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")
    first = await world.nobody.get("/ui/")
    assert first.status_code == 200
    assert first.headers["content-type"].startswith("text/html")
    assert (await world.nobody.get("/ui/nodes/n-1")).text == first.text


async def test_pages_run_nothing_but_our_own_files(world: World) -> None:
    answer = await world.nobody.get("/ui/")
    (policy,) = answer.headers.get_list("content-security-policy")
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == rules["script-src"] == rules["style-src"] == "'self'"
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["object-src"] == "'none'"
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=", answer.text)
    assert not re.search(r"(src|href)=\"(?!/ui/a/)", answer.text)


async def test_files_are_kept_for_good_under_the_hash_of_this_version(
    world: World,
) -> None:
    page = (await world.nobody.get("/ui/")).text
    paths = re.findall(r'(?:src|href)="(/ui/a/[^"]+)"', page)
    assert len(paths) > 10
    for path in paths:
        answer = await world.nobody.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["cache-control"].endswith("immutable")
        assert len(answer.headers.get_list("cache-control")) == 1
    version = assets().version
    old = paths[0].replace(version, "0" * len(version))
    fault(await world.nobody.get(old), 404, "not_found")
    fault(await world.nobody.get(f"/ui/a/{version}/..%2Fasset.py"), 404, "not_found")


async def test_the_page_itself_is_asked_for_again_by_its_tag(world: World) -> None:
    first = await world.nobody.get("/ui/")
    assert first.headers["cache-control"] == "no-cache"
    headers = {"If-None-Match": first.headers["etag"]}
    again = await world.nobody.send("GET", "/ui/nodes", headers=headers)
    assert (again.status_code, again.content) == (304, b"")


async def test_every_file_that_a_file_imports_is_there() -> None:
    files = assets().files
    found = 0
    for name, file in files.items():
        if not name.endswith(".js") or name.startswith("vendor/"):
            continue
        for target in re.findall(r'from "([^"]+)"', file.body.decode()):
            url = httpx.URL(f"http://x/{name}").join(target)
            assert url.path.lstrip("/") in files, f"{name}: {target}"
            found += 1
    assert found > 50
    pages = re.findall(r'page\("(\w+)"\)', files["pages.js"].body.decode())
    assert not [name for name in pages if f"pages/{name}.js" not in files]


async def test_a_key_becomes_a_cookie_that_no_script_can_read(world: World) -> None:
    answer = await world.admin.post("/ui/session")
    assert answer.status_code == 201
    cookie = answer.headers["set-cookie"]
    name, _, rest = cookie.partition("=")
    assert name == world.manager.access.sessions.cookie
    assert "HttpOnly" in rest
    assert "SameSite=strict" in rest
    assert f"Max-Age={int(LIFE_S)}" in rest
    assert "Secure" not in rest
    key = world.admin.headers["Authorization"].removeprefix("Bearer ")
    assert key not in cookie
    assert key.split("_", 2)[2] not in cookie


async def test_under_tls_the_cookie_is_for_tls_alone(world: World) -> None:
    answer = await world.admin.post("https://corral/ui/session")
    assert "Secure" in answer.headers["set-cookie"]


async def test_a_session_does_what_its_key_may(world: World) -> None:
    await world.worker("echo")
    async with signed_in(world, Scope.READ) as http:
        told = said(await http.get("/ui/session", headers=PAGE))
        assert (told["role"], told["name"]) == ("read", "somebody-read")
        assert (await http.get("/tasks", headers=PAGE)).status_code == 200
        task = {"task_type": "echo"}
        fault(await http.post("/tasks", json=task, headers=PAGE), 403, "forbidden")
    async with signed_in(world, Scope.SUBMIT) as http:
        made = said(await http.post("/tasks", json=task, headers=PAGE))
        row = await world.read.task(made["task_id"])
        assert row["owner"] == "somebody-submit"


async def test_a_cookie_alone_is_nothing(world: World) -> None:
    """Forms, links and images of whatever site cannot send our header."""
    async with signed_in(world) as http:
        for method, path in (("GET", "/tasks"), ("POST", "/cluster/drain")):
            fault(await http.request(method, path), 401, "unauthenticated")
        other = {**PAGE, "Sec-Fetch-Site": "same-site"}
        answer = await http.post("/cluster/drain", headers=other)
        fault(answer, 403, "forbidden")


async def test_nobody_is_told_so_without_an_error(world: World) -> None:
    for headers in ({}, PAGE):
        told = said(await world.nobody.send("GET", "/ui/session", headers=headers))
        assert (told["name"], told["role"], told["cluster"]) == (None, None, None)
    async with bare(world) as http:
        http.cookies.set(world.manager.access.sessions.cookie, "a.1.b.c")
        told = said(await http.get("/ui/session", headers=PAGE))
        assert told["role"] is None


@pytest.mark.parametrize("way", ["key", "time", "end", "forged"])
async def test_a_session_ends(world: World, way: str) -> None:
    async with signed_in(world, Scope.OPERATE) as http:
        if way == "key":
            said(await world.admin.delete("/keys/somebody-operate"))
        elif way == "time":
            world.clock.step(LIFE_S)
        elif way == "end":
            (word,) = http.cookies.values()
            said(await http.delete("/ui/session", headers=PAGE))
            assert not http.cookies
            http.cookies.set(world.manager.access.sessions.cookie, word)
        else:
            name = world.manager.access.sessions.cookie
            key_id, _, rest = http.cookies[name].partition(".")
            other = next(
                k.id for k in world.manager.access.keys.known() if k.id != key_id
            )
            http.cookies.clear()
            http.cookies.set(name, f"{other}.{rest}")
        answer = await http.get("/tasks", headers=PAGE)
        fault(answer, 401, "unauthenticated")


async def test_an_expired_session_counts_as_no_guess(world: World) -> None:
    async with signed_in(world) as http:
        world.clock.step(LIFE_S)
        for _ in range(20):
            fault(await http.get("/tasks", headers=PAGE), 401, "unauthenticated")


async def test_a_session_lives_through_a_restart_of_the_manager(world: World) -> None:
    async with signed_in(world) as http:
        cookies = httpx.Cookies(http.cookies)
    again = running(CONFIG, world.store.inner, world.clock)
    async with again as after, bare(after) as http:
        http.cookies = cookies
        assert (await http.get("/tasks", headers=PAGE)).status_code == 200


async def test_a_link_signs_in_once_as_whoever_asked_for_it(world: World) -> None:
    path = (await world.read.tell("/ui/links"))["path"]
    address, _, link = path.partition("#link=")
    assert address == "/ui/", "what follows a # is in no request and no log"
    async with bare(world) as http:
        offered = await http.post("/ui/session", json={"link": link})
        assert (offered.status_code, offered.json()["name"]) == (200, "read")
        made = await http.post("/ui/session", json={"link": link, "name": "read"})
        assert made.status_code == 201
        assert made.json()["role"] == "read"
        assert (await http.get("/tasks", headers=PAGE)).status_code == 200
        again = await http.post("/ui/session", json={"link": link, "name": "read"})
        fault(again, 401, "unauthenticated")


async def test_a_link_is_good_for_a_moment_and_as_long_as_its_key(
    world: World,
) -> None:
    async def use(path: str) -> httpx.Response:
        body = {"link": path.partition("#link=")[2]}
        return await world.nobody.post("/ui/session", body)

    late = (await world.read.tell("/ui/links"))["path"]
    world.clock.step(LINK_S)
    fault(await use(late), 401, "unauthenticated")
    key, text = await world.manager.access.keys.create(Scope.READ, "gone")
    void = (await Caller(world.http, text).tell("/ui/links"))["path"]
    await world.manager.access.keys.revoke(key.id)
    fault(await use(void), 401, "unauthenticated")
    fault(await use("#link=nothing"), 401, "unauthenticated")


async def test_where_no_keys_are_asked_for_nobody_needs_to_sign_in() -> None:
    async with running(replace(CONFIG, is_open=True)) as world:
        told = said(await world.nobody.send("GET", "/ui/session", headers=PAGE))
        assert told["role"] == "admin"


async def test_a_ticket_for_events_comes_with_the_session(world: World) -> None:
    async with signed_in(world, Scope.READ) as http:
        answer = await http.post("/events/ticket", headers=PAGE)
        assert answer.status_code == 201

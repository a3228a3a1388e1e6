"""What a stranger, or a page in somebody's browser, can do before it shows a key."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from corral import EchoWorker, Node
from corral.api.app import around
from corral.cli.serve.config import site_rules
from corral.cli.serve.manager import application, server_config
from corral.errors import CorralError, Forbidden, Unavailable
from corral.manager.access.audit import MOST as MOST_ROWS
from corral.manager.app import Manager, make_context
from corral.manager.config import ManagerConfig
from corral.relay.app import Relay, RelayedManager
from corral.relay.port import owners
from corral.settings import load
from tests.acceptance.cluster import Cluster, free_port, until
from tests.security.conftest import Attacked
from tests.twins.engine import InlineDispatcher
from tests.twins.store import MemoryStore
from tests.unit.api.world import running

CONFIG = ManagerConfig(b"the secret of the cluster")
EVIL = "evil.example"
TASK = '{"task_type": "run_script", "parameters": {"command": ["sh", "-c", "id"]}}'
MOST = 40
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def open_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Keys are off, and it was started as one is to find a mistake."""
    home = tmp_path_factory.mktemp("open")
    cluster = Cluster.start(
        home,
        [],
        "--insecure",
        DEBUG="true",
        CORRAL_HEADER_TIMEOUT_S="0.5",
        CORRAL_BODY_TIMEOUT_S="0.5",
        CORRAL_MAX_CONNECTIONS=str(MOST),
    )
    try:
        yield cluster
    finally:
        cluster.stop()


def ask(
    cluster: Cluster,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: str | None = None,
) -> httpx.Response:
    """With exactly these headers, and no others that say whose this is."""
    with httpx.Client(base_url=cluster.url, trust_env=False, timeout=60) as http:
        return http.request(method, path, headers=headers, content=body)


def refusal(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return str(error["message"])


# whose page asks, and by which name -------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": f"https://{EVIL}"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": f"https://{EVIL}"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
    ],
    ids=str,
)
def test_h5_a_page_of_another_site_changes_nothing(
    open_cluster: Cluster, attacked: Attacked, headers: dict[str, str]
) -> None:
    for kind in ("text/plain", "application/json"):
        head = {**headers, "Content-Type": kind}
        answer = ask(open_cluster, "POST", "/tasks", head, TASK)
        refusal(answer, 403)
    assert ask(open_cluster, "GET", "/tasks").json()["total"] == 0
    for method, path in (("POST", "/cluster/drain"), ("DELETE", "/keys/x")):
        with attacked.http("admin", **headers) as http:
            refusal(http.request(method, path), 403)


def test_h5_a_page_of_another_site_reads_nothing_where_keys_are_off(
    open_cluster: Cluster,
) -> None:
    cross = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    refusal(ask(open_cluster, "GET", "/tasks", cross), 403)
    refusal(ask(open_cluster, "GET", "/health", {"Origin": f"http://{EVIL}"}), 403)
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert ask(open_cluster, "GET", "/ui/", link).status_code == 200
    refusal(ask(open_cluster, "GET", "/cluster/journal", link), 403)


@pytest.mark.parametrize("name", [EVIL, f"{EVIL}:8002", "127.0.0.1.evil.example"])
def test_h5_a_name_that_was_made_to_lead_here_opens_nothing(
    open_cluster: Cluster, attacked: Attacked, name: str
) -> None:
    """DNS rebinding: to the browser it is one and the same site."""
    page = {"Host": name, "Origin": f"http://{name}", "Sec-Fetch-Site": "same-origin"}
    for method, path in (("GET", "/tasks"), ("POST", "/keys"), ("GET", "/ui/")):
        text = refusal(ask(open_cluster, method, path, {**page, **JSON}, "{}"), 403)
        assert f"CORRAL_ALLOWED_HOSTS={name.partition(':')[0]}" in text
        shown = {**page, "Authorization": "Bearer whatever"}
        refusal(ask(open_cluster, method, path, shown), 403)
    refusal(ask(attacked.cluster, "GET", "/health", page), 403)
    refusal(ask(attacked.cluster, "POST", "/ui/session", page), 403)


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ],
)
def test_h5_what_a_form_can_send_is_no_json(open_cluster: Cluster, kind: str) -> None:
    """As in a browser that tells of no origin."""
    head = {"Content-Type": kind}
    text = refusal(ask(open_cluster, "POST", "/tasks", head, TASK), 415)
    assert "Content-Type: application/json" in text
    own = {"Origin": open_cluster.url, "Sec-Fetch-Site": "same-origin"}
    refusal(ask(open_cluster, "POST", "/tasks", own, TASK), 415)


def test_h5_no_key_is_made_that_outlives_the_open_door(open_cluster: Cluster) -> None:
    body = '{"name": "mine", "role": "admin"}'
    text = refusal(ask(open_cluster, "POST", "/keys", JSON, body), 409)
    assert "--insecure" in text
    assert "mine" not in ask(open_cluster, "GET", "/keys").text


def test_h5_those_who_asked_before_still_may(
    open_cluster: Cluster, attacked: Attacked
) -> None:
    port = open_cluster.port
    for name in (
        f"localhost:{port}",
        f"127.0.0.1:{port}",
        f"[::1]:{port}",
        "a.localhost",
    ):
        assert ask(open_cluster, "GET", "/health", {"Host": name}).status_code == 200
    own = {"Origin": f"http://localhost:{port}", "Host": f"localhost:{port}", **JSON}
    assert ask(open_cluster, "POST", "/get_dlq_jobs", own, "{}").status_code == 200
    assert ask(open_cluster, "POST", "/get_dlq_jobs").status_code == 200
    assert ask(open_cluster, "POST", "/get_dlq_jobs", None, "{}").status_code == 200
    # With a key, as `curl -d` sends it, and by whatever name it knows the manager.
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with attacked.http("submit", Host="manager.lan", **form) as http:
        assert http.post("/tasks", content='{"task_type": "echo"}').status_code == 201


def test_h5_a_manager_goes_by_the_names_it_was_given() -> None:
    near = site_rules(load(allowed_hosts="Corral.Example.com, *.lan"))
    assert near.allow("corral.example.com")
    assert near.allow("gpu.rack.lan")
    for name in ("lan", "example.com", "x.corral.example.com", "10.0.0.5", EVIL):
        assert not near.allow(name), name
    url = "https://corral.example.com"
    far = site_rules(load(host="0.0.0.0", manager_url=url, allow_plaintext=True))
    for name in ("corral.example.com", "10.0.0.5", "2001:db8::1", "localhost"):
        assert far.allow(name), name
    assert not far.allow(EVIL)


async def test_h5_a_page_does_not_pass_by_the_port_of_a_node(
    open_cluster: Cluster,
) -> None:
    """Which passes on to the manager what it is asked, and says not for whom."""
    manager = RelayedManager(open_cluster.url)
    port = Relay(manager, "Node", lambda: "n-1", {}, "http://localhost:8003")
    http = httpx.AsyncClient(
        transport=httpx.ASGITransport(port), base_url="http://localhost:8003"
    )
    pages: list[dict[str, str]] = [
        {"Origin": f"https://{EVIL}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": f"http://{EVIL}", "Host": EVIL, "Authorization": "Bearer x"},
    ]
    async with http:
        for headers in pages:
            refusal(await http.post("/status", headers=headers, content="{}"), 403)
        assert (await http.post("/status", content="{}")).status_code == 200
    manager._link.close()


# proxies, and TLS --------------------------------------------------------------


async def seen_by_app(proxies: str, client: str, said: dict[str, str]) -> Any:
    """(address, scheme) of a caller as the served application is told them."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))

    served = server_config(load(trusted_proxies=proxies), app)
    served.load()
    headers = [(name.lower().encode(), value.encode()) for name, value in said.items()]
    scope = {
        "type": "http",
        "client": (client, 1),
        "scheme": "http",
        "headers": headers,
    }
    await served.loaded_app(scope, None, None)
    return seen[0]


async def test_l2_nobody_says_who_called_but_a_proxy_that_was_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each guess of a key came from another address, and none too often."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    told = {"X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "https"}
    assert await seen_by_app("", "127.0.0.1", told) == ("127.0.0.1", "http")
    assert await seen_by_app("10.0.0.0/8", "127.0.0.1", told) == ("127.0.0.1", "http")
    assert await seen_by_app("10.0.0.0/8", "10.1.1.1", told) == ("1.2.3.4", "https")
    chain = {"X-Forwarded-For": "6.6.6.6, 1.2.3.4"}
    assert await seen_by_app("10.1.1.1", "10.1.1.1", chain) == ("1.2.3.4", "http")


async def test_l2_what_came_by_tls_stays_with_tls() -> None:
    name = "corral.example.com"
    behind = site_rules(load(manager_url=f"https://{name}"))
    plain = site_rules(load(allowed_hosts=name))
    for rules, scheme, is_secure in (
        (behind, "http", True),
        (plain, "https", True),
        (plain, "http", False),
    ):
        async with running(site=rules) as world:
            answer = await world.admin.post(f"{scheme}://{name}/ui/session")
            assert ("Secure" in answer.headers["set-cookie"]) is is_secure
            has_rule = "strict-transport-security" in answer.headers
            assert has_rule is (scheme == "https")
            # It would hold for all that this machine serves on any port.
            near = await world.admin.get("https://localhost/tasks")
            assert "strict-transport-security" not in near.headers


# what a mistake tells ----------------------------------------------------------


async def test_l1_a_variable_called_debug_shows_nobody_our_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ctx = make_context(MemoryStore(), InlineDispatcher(), CONFIG)
    app = application(load(), around(Manager(ctx, CONFIG)))

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("look here")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    http = httpx.AsyncClient(transport=transport, base_url="http://localhost")
    async with app.router.lifespan_context(app), http:
        answer = await http.get("/broken")
    assert answer.status_code == 500
    assert "look here" not in answer.text
    assert "Traceback" not in answer.text


# floods --------------------------------------------------------------------------


def connect(cluster: Cluster, said: bytes = b"") -> socket.socket:
    made = socket.create_connection((cluster.host, cluster.port), 30)
    made.sendall(said)
    return made


def heard(made: socket.socket) -> bytes:
    """All that comes until the other side hangs up."""
    parts = []
    with made, contextlib.suppress(ConnectionError):
        while part := made.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def head(path: str, *more: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def test_m6_the_head_of_a_request_has_an_end(open_cluster: Cluster) -> None:
    whole = head("/health", f"X-Long: {'a' * 100_000}")
    assert heard(connect(open_cluster, whole)).startswith(b"HTTP/1.1 431 ")
    endless, sent = connect(open_cluster, whole[:-4]), 0
    with contextlib.suppress(ConnectionError):
        while sent < 100_000_000:
            sent += endless.send(b"a" * 10_000)
    endless.close()
    assert sent < 100_000_000, "it was cut off long before"
    long = head("/health", f"X-Long: {'a' * 50_000}", "Connection: close")
    assert heard(connect(open_cluster, long)).startswith(b"HTTP/1.1 200 ")


def test_m6_half_a_request_is_cut(open_cluster: Cluster) -> None:
    half = head("/health")[:-2]
    body = head("/ui/session", "Content-Length: 9", method="POST") + b"{"
    cut = [
        *(connect(open_cluster, half) for _ in range(10)),
        connect(open_cluster, body),
    ]
    for more in (half, b"\r\n"):
        one = connect(open_cluster, head("/health"))
        assert one.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        one.sendall(more)
        cut.append(one)
    silent = connect(open_cluster)
    slow = connect(open_cluster, half)
    with contextlib.suppress(ConnectionError):
        while not select.select([slow], [], [], 0.1)[0]:
            slow.sendall(b"X: y\r\n")  # one line after the other, never the last
    assert heard(slow).startswith(b"HTTP/1.1 408 ")
    assert all(b"HTTP/1.1 408 " in heard(one) for one in cut)
    assert heard(silent) == b""


def test_m6_who_holds_connections_keeps_nobody_out(open_cluster: Cluster) -> None:
    held = [connect(open_cluster) for _ in range(MOST + 20)]
    kept = [connect(open_cluster, head("/health")) for _ in range(MOST)]
    try:
        assert ask(open_cluster, "GET", "/health").status_code == 200
    finally:
        for one in (*held, *kept):
            one.close()


def test_m6_one_too_many_is_told_to_come_again(open_cluster: Cluster) -> None:
    waits = head("/events/live?wait=30")
    used = [connect(open_cluster, waits) for _ in range(MOST + 3)]
    try:
        said = heard(used[-1])
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 5\r\n" in said
        assert b"CORRAL_MAX_CONNECTIONS" in said
    finally:
        for one in used:
            one.close()


def test_m6_nobody_signs_in_with_much(attacked: Attacked) -> None:
    with attacked.http() as http:
        answer = http.post("/ui/session", json={"link": "x" * 5_000})
        assert "4096 bytes" in refusal(answer, 413)
        answer = http.post("/ui/session", json={"link": "x" * 1_000})
        refusal(answer, 401)


@pytest.mark.parametrize(
    "deep", ["[" * 100_000, '{"a":' * 65 + "1" + "}" * 65, "[" * 65 + "]" * 65]
)
def test_m6_json_is_not_nested_without_end(attacked: Attacked, deep: str) -> None:
    with attacked.http("operate", **JSON) as http:
        body = f'{{"task_type": "echo", "parameters": {deep}}}'
        refusal(http.post("/tasks", content=body), 400)
        assert "nested deeper" in refusal(http.post("/job-types", content=body), 400)
        text = {"text": deep[:999], "rows": [[]] * 99}
        flat = {"task_type": "echo", "parameters": text}
        assert http.post("/tasks", json=flat).status_code == 201


async def test_m6_the_audit_trail_does_not_grow_without_end() -> None:
    async with running() as world:
        audit = world.manager.access.audit
        world.store.is_down = True
        for _ in range(MOST_ROWS):
            audit.note("", "GET /tasks", "unauthenticated", is_allowed=False)
        for _ in range(MOST_ROWS):
            audit.note("ann", "task.submit", "t", is_allowed=True)
        with pytest.raises(Unavailable):
            await audit.flush()
        world.store.is_down = False
        await audit.flush()
        await audit.flush()
        rows = list(await world.store.inner.access.audit(3 * MOST_ROWS))
        assert len(rows) == MOST_ROWS + 1
        assert (rows[0].action, rows[0].actor) == ("audit.lost", "corral")
        assert rows[0].target.startswith(f"{MOST_ROWS} rows")
        assert sum(row.allowed for row in rows) == MOST_ROWS // 2 + 1


# ports of nodes and workers --------------------------------------------------------


def test_m9_no_plain_port_is_opened_to_the_network(attacked: Attacked) -> None:
    port = free_port()
    node = attacked.cluster.client.nodes()[0].node_id
    kind = {
        "worker_name": "plain",
        "worker_class": "corral.worker.builtin:EchoWorker",
        "worker_params": {},
    }
    where = {"node_url": node, "worker_type": "plain"}
    url = {"worker_url": f"http://0.0.0.0:{port}"}
    with attacked.http("operate") as http:
        assert http.post("/register_worker_type", json=kind).status_code == 200
        launch = http.post("/launch_worker", json={**where, **url}).json()
        launch["node_url"] = node

        def failure() -> Any:
            told = http.post("/launch_worker_status", json=launch).json()
            assert told["status"] != "ready"
            return told["status"] == "failed" and told["error"]

        assert "CORRAL_ALLOW_PLAINTEXT" in until("the worker has failed", failure)
        assert not owners(port)
        http.delete(f"/workers/{launch['launch_id']}")


class Listens(BaseHTTPRequestHandler):
    """Says it is a node, and keeps what it is shown."""

    shown: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.shown.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.send_header("x-corral-manager", "http://localhost:1")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET  # noqa: N815 - as the library calls it


@contextlib.contextmanager
def pretended_node(is_ours: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """On a port that another user of this machine opened, unless `is_ours`."""
    can_be_other = os.geteuid() == 0
    if not is_ours and can_be_other:
        os.seteuid(65_534)
    elif not is_ours:
        other = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: other)
    try:
        server = HTTPServer(("127.0.0.1", free_port()), Listens)
    finally:
        if can_be_other:
            os.seteuid(0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("is_ours", [True, False])
def test_m9_a_key_is_not_shown_to_whoever_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("CORRAL_API_KEY", "corral_0a1b2c_the-key-of-an-admin")
    Listens.shown.clear()
    with pretended_node(is_ours, monkeypatch) as port:
        url = f"http://localhost:{port}"
        if is_ours:
            with contextlib.suppress(CorralError):
                Node.connect(url, timeout=5)
            assert "Bearer corral_0a1b2c_the-key-of-an-admin" in Listens.shown
            return
        for connect in (Node.connect, EchoWorker.connect):
            with pytest.raises(Forbidden, match="api_key"):
                connect(url, timeout=5)
    assert set(Listens.shown) <= {None}


# links that sign in ----------------------------------------------------------------


async def test_l10_a_link_signs_nobody_in_who_does_not_know_as_whom() -> None:
    """Mallory sends her own link, and waits for what its visitor does in her name."""
    async with running() as world:
        link = (await world.submit.tell("/ui/links"))["path"].partition("#link=")[2]
        for _ in range(2):
            answer = await world.nobody.post("/ui/session", {"link": link})
            assert answer.status_code == 200
            assert "set-cookie" not in answer.headers
            assert (answer.json()["name"], answer.json()["role"]) == ("submit",) * 2
        wrong = {"link": link, "name": "admin"}
        refusal(await world.nobody.post("/ui/session", wrong), 409)
        meant = {"link": link, "name": "submit"}
        answer = await world.nobody.post("/ui/session", meant)
        assert answer.status_code == 201
        assert "set-cookie" in answer.headers
        refusal(await world.nobody.post("/ui/session", meant), 401)
        cross = {"Sec-Fetch-Site": "cross-site", "Origin": f"https://{EVIL}"}
        refusal(await world.nobody.post("/ui/session", meant, headers=cross), 403)

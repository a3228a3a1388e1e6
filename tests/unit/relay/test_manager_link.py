"""The one link to the manager: kept connections, ids, proxies, and what is raised."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from corral.errors import Unavailable, Unreachable
from corral.relay.manager_link import HttpLink, LinkOptions


class Host:
    """Answers what it was asked, and counts who connects; `idle` connections close."""

    def __init__(self) -> None:
        self.connections = 0
        self.heard: list[tuple[str, dict[str, str]]] = []
        self.sockets: list[socket.socket] = []
        self.body = b"{}"
        self.is_dropping = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                outer.connections += 1
                outer.sockets.append(self.connection)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_GET(self) -> None:
                outer.heard.append((self.path, dict(self.headers)))
                if outer.is_dropping:
                    outer.is_dropping = False
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        ).start()

    def hang_up(self) -> None:
        for connection in self.sockets:
            connection.shutdown(socket.SHUT_RDWR)
        self.sockets.clear()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.close()


@pytest.fixture
def link(host: Host) -> Iterator[HttpLink]:
    made = HttpLink(host.url, "a-key")
    yield made
    made.close()


def test_calls_in_a_row_share_one_connection(host: Host, link: HttpLink) -> None:
    for _ in range(5):
        assert link.post("/x", {}, dict) == {}
    assert host.connections == 1


def test_every_call_shows_the_key_and_has_an_id_of_its_own(
    host: Host, link: HttpLink
) -> None:
    link.post("/x", {}, dict)
    link.get("/y", {"since": None, "wait": 2.5}, dict, wait_s=2.5)
    assert [path for path, _ in host.heard] == ["/x", "/y?since=&wait=2.5"]
    assert {told["Authorization"] for _, told in host.heard} == {"Bearer a-key"}
    assert len({told["X-Request-ID"] for _, told in host.heard}) == 2


@pytest.mark.parametrize("resends", [False, True])
def test_connection_that_was_closed_while_idle_is_replaced_unseen(
    host: Host, resends: bool
) -> None:
    link = HttpLink(host.url, options=LinkOptions(resends=resends))
    link.post("/x", {}, dict)
    host.hang_up()
    assert link.post("/x", {}, dict) == {}
    assert (host.connections, len(host.heard)) == (2, 2)
    link.close()


@pytest.mark.parametrize(("resends", "heard"), [(False, 2), (True, 3)])
def test_request_is_sent_again_only_where_that_does_no_harm(
    host: Host, resends: bool, heard: int
) -> None:
    link = HttpLink(host.url, options=LinkOptions(resends=resends))
    link.post("/x", {}, dict)
    host.is_dropping = True
    if resends:
        assert link.post("/x", {}, dict) == {}
    else:
        with pytest.raises(Unreachable, match="does not answer") as away:
            link.post("/x", {}, dict)
        assert away.value.request_id == host.heard[-1][1]["X-Request-ID"]
    assert len(host.heard) == heard
    link.close()


def test_threads_at_once_have_connections_of_their_own(
    host: Host, link: HttpLink
) -> None:
    ready = threading.Barrier(4)
    said: list[dict[str, object]] = []

    def call() -> None:
        ready.wait(60)
        said.append(link.post("/x", {}, dict))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert said == [{}] * 4
    assert 1 <= host.connections <= 4


def test_answer_that_is_no_object_is_no_answer_of_a_manager(
    host: Host, link: HttpLink
) -> None:
    for body in (b"[]", b"<html>", b""):
        host.body = body
        with pytest.raises(Unavailable, match="did not answer as a manager does"):
            link.post("/x", {}, dict)


def test_manager_elsewhere_is_reached_by_the_proxy_of_the_environment(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:it%40s@127.0.0.1:{host.port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    link = HttpLink("http://manager.invalid:8002/below", "a-key")
    assert link.post("/x", {}, dict) == {}
    path, told = host.heard[0]
    assert path == "http://manager.invalid:8002/below/x"
    assert told["Host"] == "manager.invalid:8002"
    assert told["Proxy-Authorization"] == "Basic bWU6aXRAcw=="
    link.close()


def test_no_proxy_stands_between_a_manager_and_its_own_machine(
    host: Host, link: HttpLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    near = HttpLink(host.url)
    assert near.post("/x", {}, dict) == {}
    near.close()
    direct = HttpLink(
        "http://manager.invalid:8002", options=LinkOptions(by_proxy=False)
    )
    with pytest.raises(Unreachable, match=r"manager\.invalid"):
        direct.post("/x", {}, dict)

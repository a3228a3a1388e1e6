"""Whoever answers first on the network gets no join token for it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from corral.cli.nodes.join import check_found
from corral.cli.serve.discovery import proves
from corral.core.access.key import digest_secret, join_proof
from corral.errors import CorralError, Forbidden
from corral.manager.config import ManagerConfig
from tests.security.conftest import Attacked
from tests.unit.api.world import running, said


@dataclass
class Rogue:
    """Announces itself, and passes on to `behind` what it is asked, or makes it up."""

    behind: str | None = None
    port: int = 0
    heard: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, headers: dict[str, str]) -> bytes:
        self.heard.append(f"{path} {headers}")
        if self.behind is not None:
            return httpx.get(f"{self.behind}{path}", trust_env=False).content
        own = f"127.0.0.1:{self.port}"
        proof = join_proof(digest_secret("guessed"), "", "", [own])
        return f'{{"addresses": ["{own}"], "proof": "{proof}"}}'.encode()


@contextmanager
def announced(behind: str | None = None) -> Iterator[Rogue]:
    rogue = Rogue(behind)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = rogue.answer(self.path, dict(self.headers))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    rogue.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield rogue
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def token(attacked: Attacked) -> str:
    return attacked.cluster.client.join_token(ttl_s=600).token


def test_m10_the_manager_that_made_a_token_proves_it(
    attacked: Attacked, token: str
) -> None:
    check_found(attacked.cluster.url, token, None)
    token_id = token.split("_")[1]
    assert not proves(attacked.cluster.url, f"corral_{token_id}_another")
    assert not proves(attacked.cluster.url, "corral_nobody_knows")


@pytest.mark.parametrize("passes_on", [False, True])
def test_m10_a_rogue_gets_no_token_whether_it_makes_up_or_passes_on(
    attacked: Attacked, token: str, passes_on: bool
) -> None:
    behind = attacked.cluster.url if passes_on else None
    with announced(behind) as rogue:
        with pytest.raises(Forbidden, match="nothing was sent"):
            check_found(rogue.url, token, None)
        assert rogue.heard
        secret = token.split("_", 2)[2]
        assert not [said for said in rogue.heard if secret in said]


def test_m10_what_is_no_manager_gets_no_token(token: str) -> None:
    with pytest.raises(CorralError):
        check_found("http://127.0.0.1:9", token, None)


def test_m10_an_answer_does_not_tell_which_tokens_there_are(
    attacked: Attacked, token: str
) -> None:
    with attacked.http() as nobody:
        ask = {"token_id": token.split("_")[1], "nonce": "n"}
        known = nobody.get("/nodes/join/proof", params=ask).json()
        unknown = nobody.get("/nodes/join/proof", params=ask | {"token_id": "x"}).json()
    assert known["addresses"] == unknown["addresses"]
    assert len(known["proof"]) == len(unknown["proof"])


async def test_m10_an_address_an_admin_has_set_is_proven_too() -> None:
    config = ManagerConfig(b"secret", public_url="https://corral.lan")
    async with running(config) as world:
        told = said(await world.nobody.get("/nodes/join/proof", token_id="x"))
        assert told["addresses"][1] == "https://corral.lan"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows where argv is")
def test_l9_a_token_does_not_stay_in_the_list_of_processes() -> None:
    token = "corral_0123456789ab_" + "s" * 43
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from corral.cli.nodes.join import hide_argument\n"
        "hidden = hide_argument(sys.argv[2])\n"
        "print(hidden, Path('/proc/self/cmdline').read_text().count(sys.argv[2]))\n"
        "print(hide_argument(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, "--token", token, f"--token={token}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "0", "False"]

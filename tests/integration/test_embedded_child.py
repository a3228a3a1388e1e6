"""One supervised child at a time: backoff, hurry, logs, and a manager behind TLS."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from corral.cli.up.address import require_free, url_of
from corral.cli.up.manager_api import LocalManager
from corral.cli.up.supervise import LogTail, describe
from corral.errors import EmbeddedError, SettingsError
from corral.log_line import said_in
from corral.process.keep_alive import Child, ChildPlan, Command
from corral.process.log_file import rotate

BUSY = """
import signal, sys, threading
asked, enough = [], threading.Event()
def on_term(number, frame):
    asked.append(number)
    if len(asked) == 2:
        sys.exit(0)
signal.signal(signal.SIGTERM, on_term)
print("up", flush=True)
while True:
    signal.pause()
"""


def python(code: str) -> Command:
    return Command((sys.executable, "-c", code), dict(os.environ))


def spin(child: Child) -> None:
    """Tick until something changes."""
    while not child.tick():
        threading.Event().wait(0.005)


def test_delay_grows_with_every_death_in_a_row(tmp_path: Path) -> None:
    child = Child(ChildPlan("it", lambda deaths: python("exit(7)")), tmp_path / "log")
    child.start()
    delays = []
    for deaths in range(1, 4):
        spin(child)
        assert (child.deaths, child.exit_status) == (deaths, 7)
        delays.append(child.next_start_s or 0.0)
        spin(child)
    child.stop()
    assert delays == sorted(delays)
    assert delays[-1] > 3 * delays[0]


def test_start_that_cannot_be_prepared_counts_as_a_death(tmp_path: Path) -> None:
    def prepare(deaths: int) -> Command:
        if deaths < 2:
            raise EmbeddedError(f"not yet, {deaths}")
        return python("import signal; signal.pause()")

    child = Child(ChildPlan("it", prepare), tmp_path / "log")
    child.start()
    assert child.last_words() == "not yet, 0"
    spin(child)
    assert child.last_words() == "not yet, 1"
    spin(child)
    assert child.process is not None
    child.stop()


def test_child_that_would_rather_finish_is_asked_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    plan = ChildPlan("it", lambda deaths: python(BUSY), hurry_s=0.1, stop_s=10)
    child = Child(plan, log)
    child.start()
    assert child.process is not None
    popen = child.process.popen
    while not log.read_text():
        assert popen.poll() is None
    child.stop()
    assert popen.returncode == 0


def test_tail_gives_whole_lines_and_survives_rotation(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n")
    tail = LogTail(log)
    with log.open("a") as file:
        file.write("one\ntwo\nhal")
    assert tail.read() == ["one", "two"]
    with log.open("a") as file:
        file.write("f\n\n")
    assert tail.read() == ["half", ""]
    assert tail.read() == []
    assert rotate(log, 5)
    log.write_text("new\n")
    assert tail.read() == ["new"]


@pytest.mark.parametrize(
    ("line", "said"),
    [('{"event": "up"}', "up"), ("text", "text"), ("[1]", "[1]"), ("", "")],
)
def test_log_line_is_shown_without_its_wrapping(line: str, said: str) -> None:
    assert said_in(line) == said


def test_exit_status_is_told_in_words() -> None:
    assert describe(3) == "exit code 3"
    assert describe(-signal.SIGKILL) == "killed by SIGKILL"


def test_address_for_this_machine_is_never_a_wildcard() -> None:
    assert url_of("0.0.0.0", 1, is_tls=False) == "http://127.0.0.1:1"
    assert url_of("::", 2, is_tls=True) == "https://[::1]:2"
    assert url_of("10.0.0.7", 3, is_tls=True) == "https://10.0.0.7:3"


def test_address_of_another_machine_is_one_clear_error() -> None:
    with pytest.raises(SettingsError, match=r"cannot listen on 192\.0\.2\.1"):
        require_free("192.0.2.1", 8002)


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "healthy"}')

    def log_message(self, *words: object) -> None:
        pass


class QuietServer(HTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not trust us is what is tested here."""


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        [*command, *files, "-subj", f"/CN={name}.example"],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_manager_behind_tls_is_trusted_by_its_own_certificate_only(
    tmp_path: Path,
) -> None:
    certificate, key = make_certificate(tmp_path, "ours")
    other, _ = make_certificate(tmp_path, "theirs")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = QuietServer(("127.0.0.1", 0), Healthy)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        url = url_of("127.0.0.1", server.server_port, is_tls=True)
        nobody = tmp_path / "no.key"
        assert LocalManager(url, nobody, certificate).is_healthy()
        assert not LocalManager(url, nobody, other).is_healthy()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

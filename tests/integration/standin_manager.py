"""A manager for tests of `corral up`: answers its calls, keeps nothing else.

STANDIN_FAILURE makes it end at once, with a line on stderr and that exit code.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOME = Path(os.environ["CORRAL_HOME"])
KEY = "corral_test_key"


class Answer(BaseHTTPRequestHandler):
    running = 2

    def do_GET(self) -> None:
        agents = list(HOME.glob("agents/*/credential.json"))
        told = {"status": "healthy", "online": len(agents)}
        self._answer(200, told)

    def do_POST(self) -> None:
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self._answer(401, {"error": {"message": "no key"}})
        elif self.path == "/join-tokens":
            self._answer(201, {"token": "a-token"})
        else:
            (HOME / "drained").touch()
            Answer.running -= 1
            self._answer(200, {"running": Answer.running})

    def _answer(self, status: int, told: object) -> None:
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    sys.stderr.write('{"event": "the stand-in starts"}\n')
    failure = os.environ.get("STANDIN_FAILURE")
    if failure:
        sys.stderr.write('{"event": "the database did not answer"}\n')
        sys.exit(int(failure))
    (HOME / "manager.env").write_text(json.dumps(dict(os.environ)))
    (HOME / "admin.key").write_text(KEY)
    place = (os.environ["CORRAL_HOST"], int(os.environ["CORRAL_PORT"]))
    ThreadingHTTPServer(place, Answer).serve_forever()


if __name__ == "__main__":
    main()

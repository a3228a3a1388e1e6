"""A small real server in the shape of the OpenAI API, run by path as a process.

It counts: whatever it is asked, it writes `w0 w1 w2 ...`, and goes on from where a
prompt that ends in such words stops. Words in the prompt make it hold, crash or fail.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = 40
HOLD_AT = 10
LONGEST = 2000
_LAST = re.compile(r"w(\d+) $")


class State:
    """What the server has seen, for tests to ask."""

    def __init__(self, told: argparse.Namespace) -> None:
        self.told = told
        self.lock = threading.Lock()
        self.asked = self.busy = self.most = self.hung_up = 0
        self.bodies: list[dict[str, Any]] = []
        self.child: int | None = None

    def report(self) -> dict[str, Any]:
        with self.lock:
            return {
                "pid": os.getpid(),
                "argv": sys.argv[1:],
                "cards": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "colour": os.environ.get("COLOUR"),
                "child": self.child,
                "busy": self.busy,
                "most": self.most,
                "asked": self.asked,
                "hung_up": self.hung_up,
                "bodies": self.bodies[-4:],
            }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def do_GET(self) -> None:
        if self.path == "/health" and not self.state.told.no_health:
            self._answer(200, {})
        elif self.path == "/v1/models":
            self._answer(200, {"data": [{"id": self.state.told.served_model_name}]})
        elif self.path == "/test/state":
            self._answer(200, self.state.report())
        else:
            self._answer(404, {"error": {"message": f"there is no {self.path}"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state = self.state
        with state.lock:
            state.asked += 1
            state.busy += 1
            state.most = max(state.most, state.busy)
            state.bodies.append(body)
        try:
            self._serve(body)
        except OSError:
            self.close_connection = True
            with state.lock:
                state.hung_up += 1
        finally:
            with state.lock:
                state.busy -= 1

    def _serve(self, body: dict[str, Any]) -> None:
        if self.path == "/v1/embeddings":
            self._embed(body)
        elif self.path in ("/v1/completions", "/v1/chat/completions"):
            self._write(body)
        else:
            self._answer(404, {"error": {"message": f"there is no {self.path}"}})

    def _embed(self, body: dict[str, Any]) -> None:
        # In the wrong order, as the API allows.
        rows = [
            {"index": i, "embedding": [3.0 * len(text), 4.0 * len(text)]}
            for i, text in reversed(list(enumerate(body["input"])))
        ]
        usage = {"prompt_tokens": sum(map(len, body["input"]))}
        self._answer(200, {"data": rows, "usage": usage})

    def _write(self, body: dict[str, Any]) -> None:
        prompt, begun = self._read(body)
        key = self.state.told.key
        if key and self.headers["Authorization"] != f"Bearer {key}":
            self._answer(401, {"error": {"message": "this needs a key"}})
        elif body["model"] != self.state.told.served_model_name:
            self._answer(404, {"error": {"message": f"no model {body['model']}"}})
        elif "boom" in prompt:
            self._answer(500, {"error": {"message": "something broke"}})
        elif len(prompt) > LONGEST:
            text = f"This model's maximum context length is {LONGEST} tokens."
            self._answer(400, {"object": "error", "message": text})
        else:
            self._stream(prompt, begun, body)

    def _read(self, body: dict[str, Any]) -> tuple[str, int]:
        """All that was said, and how many words of the answer are there already."""
        if "prompt" in body:
            said = str(body["prompt"])
            found = _LAST.search(said)
        else:
            last = body["messages"][-1]
            is_open = body.get("continue_final_message") or self.state.told.prefill
            said = " ".join(str(m["content"]) for m in body["messages"])
            found = None
            if last["role"] == "assistant" and is_open:
                found = _LAST.search(str(last["content"]))
        return said, int(found[1]) + 1 if found else 0

    def _stream(self, prompt: str, begun: int, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        last = min(WORDS, begun + body["max_tokens"])
        for number in range(begun, last):
            if number == HOLD_AT and not begun:
                self._pause(prompt)
            if self.state.told.delay_s:
                threading.Event().wait(self.state.told.delay_s)
            self._event(self._choice(f"w{number} ", None))
        reason = "stop" if last == WORDS else "length"
        self._event(self._choice("", reason))
        made = {"prompt_tokens": len(prompt.split()), "completion_tokens": last - begun}
        self._event({"choices": [], "usage": made})
        if not self.state.told.no_done:
            self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _pause(self, prompt: str) -> None:
        if "crash" in prompt:
            os.kill(os.getpid(), signal.SIGKILL)
        if "hold" not in prompt:
            return
        # Until whoever asked hangs up.
        select.select([self.connection], [], [])
        if not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionError("hung up")

    def _choice(self, text: str, reason: str | None) -> dict[str, Any]:
        is_chat = "chat" in self.path
        told = {"delta": {"content": text}} if is_chat else {"text": text}
        return {"choices": [{"index": 0, "finish_reason": reason, **told}]}

    def _event(self, value: Any) -> None:
        self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_request(self, *args: Any) -> None:
        """Nobody reads it."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def arguments() -> argparse.Namespace:
    """Those of the programs it stands for, as far as they matter here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*")
    parser.add_argument("-m", dest="file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--served-model-name", "--alias", default="counter")
    parser.add_argument("--delay-s", type=float, default=0.0)
    parser.add_argument("--prefill", action="store_true")
    parser.add_argument("--no-health", action="store_true")
    parser.add_argument("--no-done", action="store_true")
    parser.add_argument("--key")
    parser.add_argument("--die", action="store_true")
    parser.add_argument("--mute", action="store_true")
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--with-child", action="store_true")
    return parser.parse_known_args()[0]


def main() -> None:
    told = arguments()
    if told.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if told.die:
        sys.stdout.write("loading weights\nerror: the weights are rotten\n")
        sys.exit(3)
    if told.mute:
        threading.Event().wait()
    Handler.state = State(told)
    if told.with_child:
        # One that leaves the process group, as a daemon does.
        code = "import threading; threading.Event().wait()"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        Handler.state.child = child.pid
    server = Server((told.host, told.port), Handler)
    server.serve_forever()


if __name__ == "__main__":
    main()

"""A supervisor for the agent's tests: talks as the wire page says, runs nothing.

Its spec's params say where to write down what it was told, and how to misbehave.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def main() -> int:
    told = json.loads(sys.stdin.readline())
    params = told["spec"]["params"]
    folder = Path(params["folder"])
    book = folder / f"{told['worker_id']}.jsonl"
    write(book, {"greeting": told, "pid": os.getpid(), "env": dict(os.environ)})
    if params.get("kin"):
        # As a runner that left its group and session, and outlives everybody.
        kin = subprocess.Popen(
            ["sleep", "300"],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        write(book, {"kin": kin.pid})
    if params.get("die_while") and Path(params["die_while"]).exists():
        sys.stderr.write("cannot go on: no module\n")
        return 3
    if params.get("die"):
        sys.stderr.write(f"cannot go on: {params['die']}\n")
        return 3
    stopped = threading.Event()
    ignored = signal.SIG_IGN if params.get("deaf") else None
    signal.signal(signal.SIGTERM, ignored or (lambda *_: stopped.set()))
    threading.Thread(target=listen, args=(book, stopped), daemon=True).start()
    speak(params, stopped)
    write(book, {"left": "in peace"})
    return 0


def speak(params: dict[str, Any], stopped: threading.Event) -> None:
    word = {
        "incarnation": os.urandom(16).hex(),
        "state": "busy" if params.get("held") else "ready",
        "error": None,
        "held": params.get("held", []),
        "finished": params.get("finished", 0),
        "failures": 0,
    }
    sick = Path(params["sick_while"]) if params.get("sick_while") else None
    if params.get("slow"):
        word["state"] = "starting"
    while True:
        if sick is not None and sick.exists():
            # As when its runners cannot start; it tries them again and again.
            word["failures"] += 1
            word.update(state="error", error="no module", fault="no module")
        sys.stdout.write(json.dumps(word) + "\n")
        sys.stdout.flush()
        if params.get("mute"):
            time.sleep(300)
        if stopped.wait(0.5):
            time.sleep(params.get("finish_s", 0.0))
            return


def listen(book: Path, stopped: threading.Event) -> None:
    for line in sys.stdin:
        write(book, json.loads(line))
    write(book, {"left": "alone"})
    os._exit(0)


def write(book: Path, row: dict[str, Any]) -> None:
    with book.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())

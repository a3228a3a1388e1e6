"""Run in a network namespace of its own, as a machine of a cloud: what a job reaches.

Prints a line for each network a job can have: its name, and where it got through to.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from pathlib import Path

from corral.worker import isolation
from corral.worker.isolation import Network, NetworkPolicy

METADATA, HERE = "169.254.169.254", "198.51.100.7"
REACHED = """
import json, socket, sys
found = []
for place in json.loads(sys.argv[1]):
    with socket.socket() as probe:
        probe.settimeout(5)
        if probe.connect_ex(tuple(place)) == 0:
            found.append(place[0])
print(json.dumps(found))
"""


def main() -> None:
    bait = socket.create_server(("0.0.0.0", 0))
    port = bait.getsockname()[1]
    places = [(METADATA, port), (HERE, port), ("127.0.0.1", port)]
    for kind in Network:
        sys.stdout.write(f"{kind} {_reached(kind, places)}\n")


def _reached(kind: Network, places: list[tuple[str, int]]) -> str:
    heard = bytearray()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "folder"
        folder.mkdir()
        job = isolation.SandboxJob(
            (sys.executable, "-I", "-c", REACHED, json.dumps(places)),
            folder,
            Path(name) / "scratch",
            f"lonely-{kind}",
            readable=(Path(sys.prefix),),
            network=kind,
            reach=NetworkPolicy(),
        )
        running = isolation.start(
            job, lambda _, data: heard.extend(data), isolation.Level.SANDBOX
        )
        assert running.wait() == 0, heard
    return heard.decode().strip()


if __name__ == "__main__":
    main()

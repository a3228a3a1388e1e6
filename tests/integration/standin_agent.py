"""An agent for tests of `corral up`: joins with its token, then does nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path


def main() -> None:
    home = Path(os.environ["CORRAL_HOME"])
    folder = home / "agents" / os.environ["CORRAL_NODE_NAME"]
    folder.mkdir(parents=True, exist_ok=True)
    with (home / "agent.starts").open("a") as file:
        file.write(json.dumps(dict(os.environ)) + "\n")
    if not (folder / "credential.json").exists():
        if os.environ.get("CORRAL_JOIN_TOKEN") != "a-token":
            sys.exit("no token")
        (folder / "credential.json").touch()
    signal.pause()


if __name__ == "__main__":
    main()

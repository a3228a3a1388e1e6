"""`corral up` with stand-ins for manager and agent; stores are real unless given."""

from __future__ import annotations

import sys
from pathlib import Path

from corral.cli.terminal import errors
from corral.cli.up.options import Options
from corral.cli.up.sequence import run_cluster
from corral.errors import CorralError

HERE = Path(__file__).parent


def main(home: str, port: str, *words: str) -> int:
    options = Options(
        home=Path(home),
        host="127.0.0.1",
        port=int(port),
        workers=("corral.worker.builtin:EchoWorker=echo",),
        drain="drain" in words,
        verbose="verbose" in words,
        manager_argv=(sys.executable, str(HERE / "standin_manager.py")),
        agent_argv=(sys.executable, str(HERE / "standin_agent.py")),
    )
    try:
        return run_cluster(options)
    except CorralError as error:
        return errors.report(error)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

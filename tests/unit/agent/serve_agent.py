"""Runs an agent as a process of its own, told by one JSON argument."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from corral.agent.config import AgentConfig
from corral.agent.life.main import serve

if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    sys.exit(
        serve(
            AgentConfig(
                manager_url=told["manager_url"],
                home=Path(told["home"]),
                name=told["name"],
                join_token=told["join_token"],
                supervisor_argv=tuple(told["supervisor_argv"]),
            )
        )
    )

"""Draws docs/img/top.svg: `corral top` on the made-up cluster of its tests.

Run it from the root: `PYTHONPATH=. .venv/bin/python tools/top_picture.py`.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec

from corral.cli.top.picture import ClusterView, read
from corral.cli.top.screen import Top
from corral.client import Client, Patience
from tests.unit.cli import top_cluster
from tests.unit.client.stand_in import serve

SIZE = (150, 36)
TARGET = Path("docs/img/top.svg")
SECONDS = 40


def before(now: ClusterView) -> Iterator[ClusterView]:
    """Pictures of the seconds before, so that there are trends."""
    dice = random.Random(4)
    status = now.overview.status
    for second in range(SECONDS, 0, -1):
        ended = status.tasks["completed"] - 3 * second + dice.randint(0, 2)
        told = msgspec.structs.replace(
            status,
            queued_tasks=3 + dice.randint(0, 6),
            tasks={**status.tasks, "completed": ended},
        )
        nodes = [
            msgspec.structs.replace(
                node,
                cpu_percent=(node.cpu_percent or 0) + dice.uniform(-15, 15),
                gpus=[
                    {**card, "utilization_percent": use and use - dice.uniform(0, 35)}
                    for card in node.gpus
                    for use in (card["utilization_percent"],)
                ],
            )
            for node in now.overview.nodes
        ]
        overview = replace(now.overview, status=told, nodes=nodes)
        yield replace(now, overview=overview, at=now.at - timedelta(seconds=second))


async def draw() -> str:
    with serve() as manager:
        top_cluster.tell(manager)
        patience = Patience(0.0, 0.0)
        with Client(manager.url, "corral_k_s", patience=patience) as client:
            now = read(client)
            app = Top(client, client, now)
            for picture in before(now):
                app.history.add(picture)
            async with app.run_test(size=SIZE) as pilot:
                await pilot.pause(0.5)
                await pilot.press("down", "down", "down")
                await pilot.pause(1.0)
                return app.export_screenshot(simplify=True)


def trimmed(svg: str) -> str:
    """The reader's own monospace will do: a picture should fetch nothing."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    return svg.replace("font-family: Fira Code, monospace", "font-family: monospace")


if __name__ == "__main__":
    TARGET.write_text(trimmed(asyncio.run(draw())), encoding="utf-8")

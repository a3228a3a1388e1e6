"""Pictures of every page of the dashboard, from a cluster at work: docs/img/ui/*.png.

Needs chromium and the development environment; run it from the repository's root:

    python tools/screenshots.py [NAME...]

The cluster has two machines with made-up cards and a week of history
(`screenshot_history.py`); all else on the pictures is happening.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(ROOT / "tools")]

import screenshot_history  # noqa: E402

from corral.client import Client  # noqa: E402
from tests.acceptance.cluster import ECHO, SLEEP, Cluster, until  # noqa: E402
from tests.acceptance.painting import SCHEMA  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OUT = ROOT / "docs" / "img" / "ui"
CARDS = {"barn-1": "4x80GB", "barn-2": "2x24GB"}
BUSY = (86, 71, 64, 12, 43, 0)
WORKING = 4
PAINTER = "tests.acceptance.painting:Painter"
WIDE, PHONE = (1280, 800), (390, 844)
LOOKS: tuple[tuple[tuple[int, int], Any, str], ...] = (
    (WIDE, "light", ""),
    (WIDE, "dark", "-dark"),
    (PHONE, "light", "-phone"),
)
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PROMPTS = (
    "a barn at dusk",
    "two horses",
    "the old bridge",
    "rain on tin",
    "a red gate",
)


@dataclass(frozen=True, slots=True)
class Shot:
    """A page, and what is done on it first."""

    name: str
    path: str
    ready: str
    act: Callable[[Page], object] | None = None


def settle(cluster: Cluster) -> None:
    """Workers on both machines, and a week behind them."""
    client = cluster.client
    client.register_job_type("paint", input_schema=SCHEMA)
    client.register_job_type("upscale", input_schema={"type": "object"})
    until("all cards are known", lambda: _cards(client) == len(BUSY))
    nodes = {node.hostname: node.node_id for node in client.nodes()}
    for node, count in (("barn-1", 3), ("barn-2", 1)):
        client.launch_worker(
            PAINTER,
            job_types=["paint"],
            gpus=1,
            count=count,
            name=f"painter-{node[-1]}",
            node_id=nodes[node],
        )
    until("painters are up", lambda: _up(client, "paint") == 4)
    asyncio.run(screenshot_history.fill_tasks(cluster))
    ids = [gpu["id"] for node in client.nodes() for gpu in node.gpus]
    for home in cluster.home.glob("**/agents/*"):
        folder = home / "simulated"
        folder.mkdir(exist_ok=True)
        for gpu, busy in zip(ids, BUSY, strict=True):
            (folder / f"{gpu}.busy").write_text(str(busy), encoding="ascii")


def _cards(client: Client) -> int:
    return sum(len(node.gpus) for node in client.nodes())


def _held(client: Client) -> int:
    gpus = [gpu for node in client.nodes() for gpu in node.gpus]
    return sum(
        bool(gpu["memory_used_mb"] and gpu["utilization_percent"]) for gpu in gpus
    )


def seed(client: Client, home: Path) -> dict[str, str]:
    """Work of all kinds; ids of tasks by what they are good for."""
    client.set_cache_ttl("echo", 3600)
    for text in ("hello", "hello", "good evening", "hello"):
        client.submit("echo", {"message": text}, labels={"team": "web"})
    for number in range(60):
        _paint(client, number, steps=4 + number % 5, pause_s=0.02)
    bad = {"prompt": "a cat", "steps": 2, "fail": "the canvas tore at stroke 2"}
    failed = client.submit("paint", bad, model_name="oil", retries=1)
    for seed_ in range(3):
        client.submit(
            "sleep", {"seconds": 0.1, "fail": f"no such file: in-{seed_}.png"}
        )
    with_needs = {"gpus": 1, "gpu_kind": "H100"}
    waiting = client.submit("upscale", {"image": "barn.png"}, resources=with_needs)
    done = _paint(client, 3, steps=6)
    client.wait(done.task_id, timeout=120)
    client.wait(failed.task_id, timeout=120)
    _standing(client, home)
    running = _paint(client, 1, steps=400, pause_s=1.5, model="fresco")
    for number in range(3):
        _paint(client, number, steps=300, pause_s=1.5)
    for number in range(14):
        _paint(client, number, steps=40, pause_s=0.1)
    gone = client.submit("sleep", {"seconds": 500})
    client.submit("sleep", {"seconds": 1500}, priority="high", timeout=1800)
    client.cancel(gone.task_id)
    until("it runs", lambda: client.get_task(running.task_id).status == "running")
    return {
        "running": running.task_id,
        "failed": failed.task_id,
        "waiting": waiting.task_id,
    }


def _up(client: Client, job_type: str) -> int:
    return sum(
        job_type in worker.job_types and worker.status in ("online", "busy")
        for worker in client.workers()
    )


def _paint(client: Client, number: int, model: str = "", **told: Any) -> Any:
    prompt = PROMPTS[number % len(PROMPTS)]
    model = model or ("sketch", "oil")[number % 3 == 2]
    labels = {"team": ("film", "web")[number % 2]}
    payload = {"prompt": prompt, **told}
    return client.submit(
        "paint", payload, model_name=model, labels=labels, timeout=1800
    )


def _standing(client: Client, home: Path) -> None:
    """What is there besides tasks."""
    for name, size in (("tiny-llama", 3), ("captions", 2)):
        folder = home / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "weights.bin").write_bytes(os.urandom(size * 1_000_000))
        client.add_model(name, str(folder), model_type="llm", tags=["demo"])
    echo = {"task_type": "echo", "parameters": {"message": "good morning"}}
    client.add_schedule("0 3 * * *", echo, name="nightly", timezone="Europe/Berlin")
    client.add_schedule("*/15 * * * *", echo, name="pulse")
    for _ in range(3):
        client.run_schedule("pulse")
    client.add_schedule("0 9 * * 1", echo, name="monday-report", overlap="skip")
    client.pause_schedule("monday-report")
    client.run_schedule("nightly")
    client.create_key("ann")
    client.create_key("ci", role="operate", ttl_s=90 * 86_400)
    client.create_key("wall-screen", role="read")
    client.revoke_key(client.create_key("intern").key_id)
    client.set_share("team=film", weight=2.0, max_running=40)
    client.set_share("team=web", weight=1.0)
    holder = next(w for w in client.workers() if "paint" in w.job_types)
    client.assign_model("sketch", [holder.worker_id], pin=True)


def shots(ids: dict[str, str], client: Client) -> list[Shot]:
    node = next(iter(client.nodes())).node_id
    worker = next(w for w in client.workers() if "paint" in w.job_types).worker_id
    return [
        Shot("overview", "/", ".figure"),
        Shot("nodes", "/nodes", "tbody tr"),
        Shot("node", f"/nodes/{node}", ".card"),
        Shot("workers", "/workers", "tbody tr"),
        Shot("worker", f"/workers/{worker}", ".card"),
        Shot("events", "/events", ".card"),
        Shot("usage", "/usage", ".card"),
        Shot("tasks", "/tasks", "tbody tr"),
        Shot("task", f"/tasks/{ids['running']}", ".log div"),
        Shot("task-failed", f"/tasks/{ids['failed']}", ".timeline"),
        Shot("task-waiting", f"/tasks/{ids['waiting']}", ".headline"),
        Shot("submit", "/submit?type=paint", "form"),
        Shot("models", "/models", "tbody tr"),
        Shot("model", "/models/oil", "tbody tr"),
        Shot("queues", "/queues", "tbody tr"),
        Shot("dead-letters", "/dead-letters", "tbody tr"),
        Shot("schedules", "/schedules", "tbody tr"),
        Shot("schedule", "/schedules/pulse", ".times"),
        Shot("simulate", "/simulate", ".card", _simulate),
        Shot("keys", "/keys", "tbody tr"),
    ]


def _simulate(page: Page) -> None:
    button = page.get_by_role("button", name="Simulate", exact=True)
    if button.count():
        page.get_by_label("Workload").select_option("synthetic")
        page.get_by_label("Policy").select_option(label="all four, compared")
        button.click()
        page.wait_for_selector(".scenarios", timeout=180_000)


@contextmanager
def at_work() -> Iterator[Cluster]:
    home = Path(tempfile.mkdtemp(prefix="corral-shots-"))
    cluster = Cluster.start(
        home,
        [ECHO, SLEEP],
        CORRAL_SIMULATED_GPUS=CARDS["barn-1"],
        CORRAL_NODE_NAME="barn-1",
        CORRAL_CLUSTER_NAME="pasture",
    )
    try:
        cards = f"CORRAL_SIMULATED_GPUS={CARDS['barn-2']}"
        cluster.join("barn-2", [], "env", cards)
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(home, ignore_errors=True)


def opened(
    browser: Browser, cluster: Cluster, size: tuple[int, int], scheme: Any, ending: str
) -> Page:
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme
    )
    page = context.new_page()
    take(page, cluster.url, Shot("login", "/", ".login"), f"login{ending}")
    page.goto(cluster.url + cluster.client.dashboard_link().path)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector(".shell")
    return page


def take(page: Page, url: str, shot: Shot, name: str) -> None:
    page.goto(f"{url}/ui{shot.path}")
    page.wait_for_selector(shot.ready, timeout=60_000)
    if shot.act is not None:
        shot.act(page)
    page.wait_for_selector(".skeleton", state="detached", timeout=60_000)
    time.sleep(0.8)  # plots draw themselves; nothing says when
    save(page.screenshot(), OUT / f"{name}.png")


def prepare(cluster: Cluster) -> dict[str, str]:
    settle(cluster)
    ids = seed(cluster.client, cluster.home)
    until("cards are read", lambda: _held(cluster.client) >= WORKING, 120)
    asyncio.run(screenshot_history.fill_readings(cluster))
    return ids


def save(png: bytes, path: Path) -> None:
    """With the colours it has most of: a third of the size, and nothing looks other."""
    from PIL import Image

    picture = Image.open(BytesIO(png)).convert("RGB")
    ranked = sorted(picture.getcolors(1 << 24) or [], reverse=True)
    kept = [colour for _, colour in ranked[:256]]
    # Pillow's own way to a palette is not exact: white would come out grey.
    place = {colour: _nearest(kept, colour) for _, colour in ranked}
    flat = picture.tobytes()
    pixels = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    few = Image.frombytes("P", picture.size, bytes(place[one] for one in pixels))
    few.putpalette([part for colour in kept for part in colour])
    few.save(path, optimize=True)


def _nearest(kept: list[Any], colour: Any) -> int:
    def away(place: int) -> int:
        return sum((a - b) ** 2 for a, b in zip(kept[place], colour, strict=True))

    return min(range(len(kept)), key=away)


def main() -> None:
    from playwright.sync_api import sync_playwright

    wanted = set(sys.argv[1:])
    OUT.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("CHROMIUM", shutil.which("chromium") or "chromium")
    with at_work() as cluster:
        ids = prepare(cluster)
        some = [
            shot
            for shot in shots(ids, cluster.client)
            if not wanted or shot.name in wanted
        ]
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=_FLAGS)
            for size, scheme, ending in LOOKS:
                page = opened(browser, cluster, size, scheme, ending)
                for shot in some:
                    take(page, cluster.url, shot, shot.name + ending)
            browser.close()
    total = sum(path.stat().st_size for path in OUT.glob("*.png"))
    sys.stdout.write(f"{len(list(OUT.glob('*.png')))} pictures, {total / 1e6:.2f} MB\n")


if __name__ == "__main__":
    main()

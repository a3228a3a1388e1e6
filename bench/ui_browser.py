"""A real Chromium that looks at the dashboard and says when it saw what.

All times are taken inside the page, at the frame after the one that has what was
waited for, so that driving the browser from here costs them nothing.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from bench.meter import BenchError

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
LIMIT_MS = 30_000
SCRIPT = Path(__file__).with_name("ui_probe.js")
Wants = Mapping[str, Sequence[str]]
"""What a page shows once its data is there: selectors by a pattern of its address."""


@contextmanager
def chromium() -> Iterator[Browser]:
    where = shutil.which("chromium") or shutil.which("chromium-browser")
    if where is None:
        raise BenchError("chromium is not installed: apt-get install chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=where, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Viewer:
    """Somebody's browser, signed in, with one page open."""

    def __init__(self, context: BrowserContext, page: Page, url: str) -> None:
        self._context = context
        self.page = page
        self._url = url

    def open(self, path: str) -> float:
        """Load a page anew; milliseconds until its data was shown."""
        self.go(path)
        try:
            self.page.wait_for_function("() => window.benchShown > 0")
        except PlaywrightTimeout as error:
            missing = self.page.evaluate("() => window.benchMissing?.()")
            raise BenchError(f"{path} does not show {missing}: {error}") from error
        return float(self.page.evaluate("() => window.benchShown"))

    def go(self, path: str) -> None:
        self.page.goto(f"{self._url}/ui{path}", wait_until="commit")

    def watch(self, test: str, *given: Any) -> None:
        """Note the moment in which `test`, a function of the page, is true."""
        self.page.evaluate(f"(given) => benchWatch({test}, given)", list(given))

    def seen_at(self) -> float:
        """When it was, in epoch seconds."""
        self.page.wait_for_function("() => window.benchSeen > 0")
        return float(self.page.evaluate("() => window.benchSeen")) / 1000.0

    def took_ms(self, act: Callable[[], object], test: str, *given: Any) -> float:
        """From before `act` until the page shows it."""
        self.watch(test, *given)
        begun = time.time()
        act()
        return (self.seen_at() - begun) * 1000.0

    def frames(self, act: Callable[[], object]) -> dict[str, Any]:
        """`gaps` between frames and `long` tasks of the page meanwhile, in ms."""
        self.page.evaluate("() => benchFrames.start()")
        act()
        told: dict[str, Any] = self.page.evaluate("() => benchFrames.stop()")
        return told

    def requests(self) -> int:
        """How many the page has made."""
        return int(
            self.page.evaluate("() => performance.getEntriesByType('resource').length")
        )

    def close(self) -> None:
        self._context.close()


def viewer(browser: Browser, url: str, key: str, wants: Wants) -> Viewer:
    context = browser.new_context(viewport={"width": 1360, "height": 860})
    context.set_default_timeout(LIMIT_MS)
    said = context.request.post(
        f"{url}/ui/session", headers={"Authorization": f"Bearer {key}"}, data="{}"
    )
    if said.status != 201:
        raise BenchError(f"signing in: {said.status} {said.text()}")
    probe = SCRIPT.read_text(encoding="utf-8")
    context.add_init_script(probe.replace("WANTED", json.dumps(dict(wants))))
    return Viewer(context, context.new_page(), url)

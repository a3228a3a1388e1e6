"""A real Chromium on the dashboard of a live cluster, for tests to look and click.

Every page opened here is watched: an error in its console, a request to another
origin, or a part that keeps people out is a fault.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    Request,
    ViewportSize,
    sync_playwright,
)

from tests.acceptance.cluster import Cluster

AXE = Path(__file__).parent / "axe" / "axe.min.js"
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
LIMIT_MS = 60_000
PHONE = ViewportSize(width=390, height=844)
SCREEN = ViewportSize(width=1360, height=860)
_FIND = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.filter(v => ["serious", "critical"].includes(v.impact))
    .map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary)]);
}"""


def chromium() -> str:
    """Where Chromium is; tests that need it are left out where it is not."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed: apt-get install chromium")
        pytest.skip("chromium is not installed: apt-get install chromium")
    return found


@dataclass
class Dashboard:
    """One browser on one cluster, signed in with its admin key."""

    cluster: Cluster
    browser: Browser
    faults: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        return (self.cluster.home / "admin.key").read_text().strip()

    @contextmanager
    def page(
        self,
        path: str = "/",
        *,
        key: str | None = None,
        is_dark: bool = False,
        is_phone: bool = False,
    ) -> Iterator[Page]:
        """A page signed in with `key` (the admin's; "" for nobody), then checked."""
        with self.context(is_dark=is_dark, is_phone=is_phone) as context:
            if key != "":
                self.sign_in(context, key or self.key)
            page = context.new_page()
            page.goto(f"{self.cluster.url}/ui{path}")
            yield page
        assert not self.faults, self.faults

    @contextmanager
    def context(
        self, *, is_dark: bool = False, is_phone: bool = False
    ) -> Iterator[BrowserContext]:
        """Somebody's browser; its pages are watched."""
        context = self.browser.new_context(
            viewport=PHONE if is_phone else SCREEN,
            color_scheme="dark" if is_dark else "light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(LIMIT_MS)
        self.faults.clear()
        context.on("page", self._watch)
        try:
            yield context
        finally:
            context.close()

    def sign_in(self, context: BrowserContext, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{self.cluster.url}/ui/session"
        answer = context.request.post(url, headers=headers, data="{}")
        assert answer.status == 201, answer.text()

    def _watch(self, page: Page) -> None:
        def hear(message: Any) -> None:
            if message.type in ("error", "warning"):
                self.faults.append(f"{page.url}: {message.type}: {message.text}")

        def look(request: Request) -> None:
            own = (self.cluster.url, self.cluster.url.replace("http", "ws", 1))
            if not request.url.startswith((*own, "data:", "blob:")):
                self.faults.append(f"{page.url}: asked {request.url}")

        page.on("console", hear)
        page.on("request", look)
        page.on("pageerror", lambda error: self.faults.append(f"{page.url}: {error}"))


def barriers(page: Page) -> list[Any]:
    """What of the page keeps people out, by axe-core: serious and critical alone."""
    if not page.evaluate("() => typeof axe === 'object'"):
        # Not as a script of the page: its policy lets in none but its own.
        page.evaluate(AXE.read_text(encoding="utf-8") + "\n; undefined")
    found: list[Any] = page.evaluate(_FIND)
    return found


def is_open_to_all(page: Page) -> None:
    assert barriers(page) == []


def row(page: Page, table: str, text: str) -> Locator:
    found = page.get_by_role("table", name=table).get_by_role("row")
    return found.filter(has_text=text).first


def region(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def button(page: Page | Locator, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


@contextmanager
def dashboard(cluster: Cluster) -> Iterator[Dashboard]:
    where = chromium()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=where, args=list(FLAGS))
        try:
            yield Dashboard(cluster, browser)
        finally:
            browser.close()

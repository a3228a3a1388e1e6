"""The dashboard in a real browser on a live cluster: sign in, look, act, keep up."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from corral.client import Client
from tests.acceptance.browser import (
    Dashboard,
    barriers,
    dashboard,
    is_open_to_all,
    row,
)
from tests.acceptance.cluster import CORRAL, ECHO, ROOT, SLEEP, Cluster, until

PAGES = ROOT / "src" / "corral" / "dashboard" / "static" / "pages.js"
ROUTES = re.findall(r'path: "([^"]+)"', PAGES.read_text(encoding="utf-8"))
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With tasks that run, wait, failed and were cancelled, and an open alert."""
    started = Cluster.start(
        tmp_path_factory.mktemp("dashboard"),
        [ECHO, SLEEP],
        CORRAL_SIMULATED_GPUS="2x80GB,1x24GB",
        CORRAL_HEARTBEAT_INTERVAL_S="2",
        CORRAL_ALERT_MEMORY_PERCENT="1",
        CORRAL_ALERT_AFTER_S="0.5",
    )
    try:
        client = started.client
        started.serving("echo")
        started.serving("sleep")
        assert client.run("echo", {"message": "hi"}) is not None
        failing = client.submit("echo", {"wrong": 1}, labels={"team": "red"})
        client.submit("sleep", {"seconds": 600}, timeout=900)
        client.submit("sleep", {"seconds": 600}, timeout=900)
        unwanted = client.submit("sleep", {"seconds": 600}, timeout=900)
        client.cancel(unwanted.task_id)
        client.wait(failing.task_id)
        until("an alert is open", client.alerts)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> Iterator[Dashboard]:
    with dashboard(cluster) as made:
        yield made


def test_a_key_signs_in_and_out(pages: Dashboard) -> None:
    with pages.page("/nodes", key="") as page:
        expect(page).to_have_title("Sign in · Corral")
        is_open_to_all(page)
        page.get_by_label("Your key").fill(pages.key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Your key")).to_be_visible()
        page.reload()
        expect(page.get_by_label("Your key")).to_be_visible()


def test_a_key_that_is_none_is_told_so(pages: Dashboard) -> None:
    with pages.page(key="") as page:
        page.get_by_label("Your key").fill("corral_nobody_knows")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("not known")
        # The browser itself tells of the refused request.
        pages.faults.clear()


def test_a_link_of_the_command_line_signs_in_once(pages: Dashboard) -> None:
    told = subprocess.run(
        [*CORRAL, "dashboard", "--print"],
        env=pages.cluster.environment | {"CORRAL_PORT": str(pages.cluster.port)},
        capture_output=True,
        text=True,
        check=True,
    )
    link = told.stdout.strip()
    assert link.startswith(f"{pages.cluster.url}/ui/#link=")
    with pages.context() as context:
        page = context.new_page()
        # Also in a tab that asks for a key already, where only the address changes.
        page.goto(f"{pages.cluster.url}/ui/")
        expect(page.get_by_label("Your key")).to_be_visible()
        page.goto(link)
        # Whose link it is stands there before it does anything.
        expect(page.get_by_role("heading", name="Sign in as admin?")).to_be_visible()
        assert not context.cookies()
        is_open_to_all(page)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert "link" not in page.url
        assert not pages.faults
    with pages.context() as context:
        page = context.new_page()
        page.goto(link)
        expect(page.get_by_label("Your key")).to_be_visible()
        expect(page.get_by_role("status").last).to_contain_text("was used")


def test_the_overview_shows_the_cluster_and_keeps_up(pages: Dashboard) -> None:
    with pages.page("/") as page:
        expect(page.get_by_role("table", name="Running tasks")).to_contain_text("sleep")
        cards = page.get_by_role("list", name="GPUs of local").get_by_role("listitem")
        expect(cards).to_have_count(3)
        expect(page.locator(".reasons", has_text="memory")).to_be_visible()
        expect(page.get_by_role("img", name="Tasks that wait")).to_be_visible()
        expect(page.locator(".connection")).to_have_text("Live")
        is_open_to_all(page)
        waiting = page.locator(".figure", has_text="Waiting").locator(".value")
        before = int(waiting.inner_text())
        made = pages.cluster.client.submit("sleep", {"seconds": 1})
        expect(waiting).to_have_text(str(before + 1))
        pages.cluster.client.cancel(made.task_id)
        expect(waiting).to_have_text(str(before))
        page.get_by_role("button", name="24h").click()
        expect(page).to_have_url(f"{pages.cluster.url}/ui/?range=24h")


def test_cards_of_many_machines_are_one_picture(pages: Dashboard) -> None:
    with pages.page("/keys") as page:
        headers = {"Authorization": f"Bearer {pages.key}"}
        told = page.request.get(f"{pages.cluster.url}/nodes", headers=headers).json()
        like = next(node for node in told["nodes"] if node["gpus"])
        told["nodes"] = [
            {**like, "node_id": f"n-{n}", "hostname": f"box-{n}"} for n in range(100)
        ]
        page.route(f"{pages.cluster.url}/nodes", lambda route: route.fulfill(json=told))
        page.goto(f"{pages.cluster.url}/ui/")
        picture = page.get_by_role("list", name="GPUs of each machine")
        machines = picture.get_by_role("link")
        expect(machines).to_have_count(100)
        name = re.compile("^box-0: 3 GPUs, memory .+ %")
        expect(machines.first).to_have_accessible_name(name)
        expect(machines.first.locator("i")).to_have_count(3)
        is_open_to_all(page)
        expect(machines.first).to_have_attribute("href", "/ui/nodes/n-0")
        # What is still asked for may come when the page is gone.
        page.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize("look", ["dark", "phone"])
def test_it_is_for_dark_rooms_and_phones_too(pages: Dashboard, look: str) -> None:
    with pages.page("/", is_dark=look == "dark", is_phone=look == "phone") as page:
        expect(page.get_by_role("table", name="Running tasks")).to_contain_text("sleep")
        is_open_to_all(page)
        if look == "dark":
            shade = "getComputedStyle(document.body).backgroundColor"
            assert page.evaluate(shade) == "rgb(15, 19, 25)"
            page.get_by_role("button", name="Light").click()
            assert page.evaluate(shade) == "rgb(245, 246, 248)"
            return
        wide = "document.documentElement.scrollWidth"
        assert page.evaluate(wide) <= 390, "nothing hangs over the edge"
        page.get_by_role("button", name="More").click()
        page.get_by_role("link", name="Workers", exact=True).click()
        expect(page.get_by_role("heading", name="Workers")).to_be_visible()


def test_all_of_it_goes_by_keyboard(pages: Dashboard) -> None:
    with pages.page("/tasks") as page:
        table = page.get_by_role("table", name="Tasks")
        rows = table.locator("tbody tr")
        expect(rows.nth(2)).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        rows.first.focus()
        page.keyboard.press("ArrowDown")
        expect(rows.nth(1)).to_be_focused()
        page.keyboard.press("Space")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Shift+Space")
        expect(page.get_by_text("2 chosen")).to_be_visible()
        name = re.compile("^(Cancel|Run again) [12]$")
        page.get_by_role("button", name=name).first.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog.locator(":focus")).to_have_count(1)
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        rows.nth(1).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="sleep", level=1)).to_be_visible()


@pytest.mark.spec("A24")
def test_a_node_is_looked_at_held_and_let_go(pages: Dashboard) -> None:
    with pages.page("/nodes") as page:
        node = row(page, "Nodes", "local")
        expect(node.get_by_role("meter")).to_have_count(3)
        for word in ("manager", "online", re.compile("ago|just now")):
            expect(node).to_contain_text(word)
        is_open_to_all(page)
        row(page, "Nodes", "local").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="local")).to_be_visible()
        for plot in ("CPU", "Memory", "Disk", "Network", "Use and memory of GPU 2"):
            expect(page.get_by_role("img", name=plot).first).to_be_visible()
        expect(page.get_by_role("table", name="Workers")).to_contain_text("echo")
        expect(page.get_by_role("table", name="Events")).to_contain_text("joined")
        is_open_to_all(page)
        page.get_by_role("button", name="Cordon", exact=True).click()
        page.get_by_label("Reason").fill("new cables")
        page.get_by_role("dialog").get_by_role("button", name="Cordon").click()
        expect(page.locator(".lead")).to_contain_text("cordoned")
        expect(page.get_by_text("new cables", exact=True)).to_be_visible()
        page.get_by_role("button", name="Uncordon").click()
        expect(page.locator(".lead")).to_contain_text("online")


def test_a_worker_is_looked_at_and_started_anew(pages: Dashboard) -> None:
    with pages.page("/workers") as page:
        expect(row(page, "Workers", "echo")).to_be_visible()
        is_open_to_all(page)
        row(page, "Workers", "echo").click()
        expect(page.get_by_role("heading", name="echo")).to_be_visible()
        expect(page.get_by_text("corral.worker.builtin:EchoWorker")).to_be_visible()
        expect(page.get_by_role("table", name="Tasks of this worker")).to_be_visible()
        is_open_to_all(page)
        page.get_by_role("button", name="Restart").click()
        page.get_by_role("dialog").get_by_role("button", name="Restart").click()
        expect(page.locator(".toast")).to_contain_text("starts anew")


def test_an_alert_is_acknowledged_with_a_note(pages: Dashboard) -> None:
    with pages.page("/events") as page:
        alert = row(page, "Alerts", "memory")
        expect(alert).to_contain_text("open")
        expect(page.get_by_role("table", name="Events")).to_contain_text("alert")
        is_open_to_all(page)
        alert.get_by_role("button", name="Acknowledge").click()
        page.get_by_label("Note").fill("more is ordered")
        page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
        expect(alert).to_contain_text("acknowledged")
        expect(alert).to_contain_text("more is ordered")
    (found,) = [a for a in pages.cluster.client.alerts() if a.rule == "node_memory"]
    assert found.acknowledged_by == "admin"


def test_what_was_used_is_plotted_and_saved(pages: Dashboard, tmp_path: Path) -> None:
    with pages.page("/usage?range=24h") as page:
        expect(row(page, "Usage by User", "admin")).to_be_visible()
        is_open_to_all(page)
        page.get_by_role("button", name="Job type").click()
        expect(row(page, "Usage by Job type", "sleep")).to_be_visible()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as CSV").click()
        file = tmp_path / "usage.csv"
        saved.value.save_as(file)
        page.get_by_role("button", name="Label").click()
        page.get_by_label("Label", exact=True).fill("team")
        page.get_by_role("button", name="Show").click()
        expect(row(page, "Usage by team", "red")).to_be_visible()
    with file.open(newline="") as text:
        assert "sleep" in {line["job_type"] for line in csv.DictReader(text)}


def test_who_may_only_look_sees_nothing_to_press(pages: Dashboard) -> None:
    key = pages.cluster.client.create_key("looker", role="read").key
    with pages.page("/nodes", key=key) as page:
        row(page, "Nodes", "local").click()
        expect(page.get_by_role("table", name="Workers")).to_be_visible()
        expect(page.get_by_role("button", name="Drain")).to_have_count(0)
        page.get_by_role("link", name="Workers", exact=True).click()
        row(page, "Workers", "sleep").click()
        expect(page.get_by_text("Models in memory")).to_be_visible()
        expect(page.get_by_role("button", name="Restart")).to_have_count(0)


def test_every_page_is_open_to_all_also_on_a_phone_in_the_dark(
    pages: Dashboard,
) -> None:
    client = pages.cluster.client
    ids = {
        "/nodes/:id": client.nodes()[0].node_id,
        "/workers/:id": client.workers()[0].worker_id,
        "/tasks/:id": next(client.list_tasks(status="failed")).task_id,
        "/schedules/:id": "weekly",
        "/models/:id": "oil",
    }
    task = {"task_type": "echo", "parameters": {"message": "monday"}}
    client.add_schedule("0 9 * * 1", task, name="weekly")
    known = [path for path in ROUTES if path not in ids]
    assert {path for path in known if ":" in path} == set()
    paths = [*known, *(path.replace(":id", part) for path, part in ids.items())]
    for is_dark in (False, True):
        with pages.page("/", is_phone=is_dark, is_dark=is_dark) as page:
            for path in paths:
                page.goto(f"{pages.cluster.url}/ui{path}")
                expect(page.get_by_role("heading", level=1)).to_be_visible()
                expect(page.locator(".skeleton")).to_have_count(0)
                wide = page.evaluate("() => document.documentElement.scrollWidth")
                assert wide <= (390 if is_dark else 1360), path
                assert barriers(page) == [], path
    client.remove_schedule("weekly")


def test_pages_outlive_the_manager(pages: Dashboard) -> None:
    """Last here: it kills the manager, which is started again."""
    with pages.page("/") as page:
        expect(page.locator(".connection")).to_have_text("Live")
        pages.cluster.kill("manager")
        expect(page.get_by_text("The manager does not answer")).to_be_visible()
        expect(page.locator(".connection")).to_have_text("Live")
        expect(page.get_by_text("The manager does not answer")).to_have_count(0)
        with Client(pages.cluster.url, home=pages.cluster.home) as client:
            made = client.submit("sleep", {"seconds": 1})
            waiting = page.locator(".figure", has_text="Waiting").locator(".value")
            expect(waiting).to_have_text("2")
            client.cancel(made.task_id)
        # The browser itself tells of requests that got no answer.
        pages.faults.clear()

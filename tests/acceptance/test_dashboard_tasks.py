"""Work on the dashboard, in a real browser on a live cluster: submit, watch, act."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from corral.client import Client
from tests.acceptance.browser import (
    Dashboard,
    button,
    dashboard,
    is_open_to_all,
    region,
    row,
)
from tests.acceptance.cluster import ECHO, SLEEP, Cluster, until
from tests.acceptance.painting import SCHEMA

PAINTER = "tests.acceptance.painting:Painter=paint"
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With tasks that run, wait, failed, were cancelled and are dead letters."""
    started = Cluster.start(
        tmp_path_factory.mktemp("dashboard"),
        [ECHO, SLEEP, PAINTER],
        CORRAL_SIMULATED_GPUS="1x80GB",
    )
    try:
        client = started.client
        for job_type in ("echo", "sleep", "paint"):
            started.serving(job_type)
        client.register_job_type("paint", input_schema=SCHEMA)
        client.register_job_type("engrave")
        client.run("echo", {"message": "hi"}, labels={"team": "red"})
        client.submit("sleep", {"seconds": 600}, timeout=900)
        client.cancel(client.submit("sleep", {"seconds": 600}).task_id)
        for word in ("one", "two"):
            wrong = {"seconds": 0, "fail": f"the file {word} is not there"}
            client.submit("echo", wrong, task_id=f"broken-{word}")
        client.submit("engrave", {"words": "here lies"}, task_id="patience")
        client.wait_many(["broken-one", "broken-two"], timeout=60)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> Iterator[Dashboard]:
    with dashboard(cluster) as made:
        yield made


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return cluster.client


def test_a_form_from_the_schema_submits_a_task_that_is_watched_to_its_end(
    pages: Dashboard, client: Client, tmp_path: Path
) -> None:
    signed = tmp_path / "signed"
    with pages.page("/submit?type=paint") as page:
        page.get_by_label("Steps").fill("400")
        page.get_by_label("Prompt").fill("a barn")
        page.get_by_label("Style").select_option(label="cubist")
        page.get_by_label("Pause s").fill("0.25")
        page.get_by_label("Until").fill(str(signed))
        button(page.get_by_role("group", name="Colours"), "Add one").click()
        page.get_by_label("1.").fill("red")
        page.get_by_label("Model").fill("sketch")
        page.get_by_label("Labels").fill("team=film")
        is_open_to_all(page)
        button(page, "Submit").click()
        # All of it comes without a reload: the state, strokes, lines, and the result.
        expect(page.get_by_role("meter", name="Progress")).to_be_visible()
        expect(page.get_by_role("log", name="Log")).to_contain_text("stroke 2 of 400")
        expect(page.get_by_role("log", name="Streamed output")).to_contain_text(
            "stroke 3"
        )
        signed.touch()
        expect(region(page, "Result")).to_contain_text("a picture of a barn")
        expect(page.locator(".page-head .badge")).to_contain_text("completed")
        expect(page.locator(".timeline .track .run")).to_be_visible()
        expect(page.locator(".headline")).to_contain_text("completed on worker")
        is_open_to_all(page)
        told = client.get_task(page.url.rpartition("/")[2])
    assert told.parameters == {
        "prompt": "a barn",
        "steps": 400,
        "style": "cubist",
        "guidance": 7.5,
        "framed": False,
        "size": {"width": 512, "height": 512},
        "colours": ["red"],
        "pause_s": 0.25,
        "until": str(signed),
    }
    assert (told.model_name, told.labels) == ("sketch", {"team": "film"})


def test_what_the_api_refuses_stands_at_its_field(pages: Dashboard) -> None:
    with pages.page("/submit?type=paint") as page:
        button(page.get_by_role("group", name="How to write it"), "JSON").click()
        page.get_by_label("Parameters as JSON").fill('{"prompt": "x", "steps": 9000}')
        button(page.get_by_role("group", name="How to write it"), "Form").click()
        # The browser would not send it; the manager is to have its say.
        page.eval_on_selector("form", "(form) => (form.noValidate = true)")
        button(page, "Submit").click()
        steps = page.get_by_label("Steps")
        expect(steps).to_have_attribute("aria-invalid", "true")
        expect(page.locator(".wrong")).to_contain_text("9000 is greater than")
        # The browser itself tells of the refused request.
        pages.faults.clear()


def test_a_task_that_waits_says_why_and_a_running_one_is_cancelled(
    pages: Dashboard, client: Client
) -> None:
    with pages.page("/tasks/patience") as page:
        expect(page.locator(".headline")).to_contain_text("no worker serves 'engrave'")
        expect(page.locator(".changes")).to_contain_text("corral worker launch")
        is_open_to_all(page)
        payload = {"prompt": "the sea", "steps": 400, "pause_s": 0.5}
        task = client.submit("paint", payload).task_id
        page.goto(f"{pages.cluster.url}/ui/tasks/{task}")
        expect(page.get_by_role("log", name="Log")).to_contain_text("stroke 1 of 400")
        button(page, "Cancel").click()
        button(page.get_by_role("dialog"), "Cancel it").click()
        expect(page.locator(".page-head .badge")).to_contain_text("cancelled")
        button(page, "Run again").click()
        expect(page.locator(".page-head .badge")).to_contain_text("running")
        client.cancel(task)
        expect(page.locator(".page-head .badge")).to_contain_text("cancelled")


def test_files_of_a_task_are_fetched_and_what_it_waits_for_is_named(
    pages: Dashboard, client: Client
) -> None:
    first = client.submit("paint", {"prompt": "ice", "steps": 1}, profile="python")
    second = client.submit("engrave", {"words": "ice"}, depends_on=[first.task_id])
    client.wait(first.task_id, timeout=60)
    with pages.page(f"/tasks/{second.task_id}") as page:
        needed = region(page, "It waits for")
        expect(needed).to_contain_text("completed")
        needed.get_by_role("link", name=first.task_id).click()
        with page.expect_download() as fetched:
            button(page, "Download profile.txt").click()
        assert "run" in fetched.value.path().read_text()
    client.cancel(second.task_id)


def test_tasks_are_found_and_acted_upon_together(
    pages: Dashboard, client: Client
) -> None:
    ids = [
        client.submit("engrave", {"words": n}, labels={"row": "b"}) for n in range(3)
    ]
    with pages.page("/tasks") as page:
        expect(row(page, "Tasks", "engrave")).to_be_visible()
        is_open_to_all(page)
        page.get_by_role("combobox", name="Type").select_option("engrave")
        page.get_by_label("Label key=value").fill("row=b")
        rows = page.get_by_role("table", name="Tasks").locator("tbody tr")
        expect(rows).to_have_count(3)
        page.get_by_label("Choose all").check()
        button(page, "Cancel 3").click()
        button(page.get_by_role("dialog"), "Cancel them").click()
        expect(page.get_by_text("3 chosen")).to_have_count(0)
        expect(rows.filter(has_text="cancelled")).to_have_count(3)
        page.get_by_label("Choose all").check()
        button(page, "Run again 3").click()
        button(page.get_by_role("dialog"), "Run again").click()
        expect(rows.filter(has_text="queued")).to_have_count(3)
        page.get_by_label("Label key=value").fill("")
        page.get_by_label("Search id").fill("no worker has this")
        expect(page.get_by_text("No task is like that")).to_be_visible()
    for one in ids:
        client.cancel(one.task_id)


def test_all_that_match_are_acted_upon_once_their_number_was_told(
    pages: Dashboard, client: Client
) -> None:
    ids = [
        client.submit("engrave", {"words": n}, labels={"row": "c"}).task_id
        for n in range(4)
    ]
    with pages.page("/tasks") as page:
        expect(row(page, "Tasks", "engrave")).to_be_visible()
        expect(button(page, "Cancel all…")).to_have_count(0)
        page.get_by_label("Label key=value").fill("row=c")
        rows = page.get_by_role("table", name="Tasks").locator("tbody tr")
        expect(rows).to_have_count(4)
        button(page, "Cancel all…").click()
        dialog = page.get_by_role("dialog", name="Cancel 4 tasks that match?")
        is_open_to_all(page)
        button(dialog, "Leave it").click()
        expect(rows.filter(has_text="queued")).to_have_count(4)
        button(page, "Cancel all…").click()
        button(dialog, "Cancel 4 tasks").click()
        expect(rows.filter(has_text="cancelled")).to_have_count(4)
        page.get_by_role("combobox", name="State").select_option("cancelled")
        expect(button(page, "Cancel all…")).to_have_count(0)
        button(page, "Run all again…").click()
        again = page.get_by_role("dialog", name="Run 4 tasks again?")
        button(again, "Run 4 tasks again").click()
        expect(page.get_by_text("No task is like that")).to_be_visible()
    assert {client.get_task(one).status for one in ids} == {"queued"}
    for one in ids:
        client.cancel(one)


def test_tasks_are_found_by_model_and_worker(pages: Dashboard, client: Client) -> None:
    made = client.submit("paint", {"prompt": "x", "steps": 1}, model_name="fresco")
    worker = client.wait(made.task_id, timeout=60).worker_id or ""
    with pages.page("/tasks?model=fresco") as page:
        rows = page.get_by_role("table", name="Tasks").locator("tbody tr")
        expect(rows).to_have_count(1)
        expect(rows.first).to_have_attribute("data-id", made.task_id)
        page.get_by_label("Worker id").fill(worker)
        expect(page).to_have_url(re.compile(f"worker={worker}"))
        expect(rows).to_have_count(1)
        page.get_by_label("Model").fill("no-such")
        expect(page.get_by_text("No task is like that")).to_be_visible()


def test_rows_change_where_they_are_and_new_ones_wait_to_be_asked_for(
    pages: Dashboard, client: Client
) -> None:
    with pages.page("/tasks?type=engrave") as page:
        rows = page.get_by_role("table", name="Tasks").locator("tbody tr")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        expect(rows.first).to_be_visible()
        page.wait_for_load_state("networkidle")
        first = rows.first.get_attribute("data-id")
        rows.first.hover()
        made = client.submit("engrave", {"words": "new"}).task_id
        more = page.get_by_role("button", name="new task")
        expect(more).to_be_visible()
        assert rows.first.get_attribute("data-id") == first
        more.click()
        expect(rows.first).to_have_attribute("data-id", made)
        rows.first.hover()
        client.cancel(made)
        expect(rows.first).to_contain_text("cancelled")


def test_a_dead_letter_tells_why_and_is_requeued_or_discarded(
    pages: Dashboard, client: Client
) -> None:
    with pages.page("/dead-letters") as page:
        button(page, "Why task broken-one").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.locator(".traceback")).to_contain_text("ValueError")
        is_open_to_all(page)
        button(dialog, "Close").click()
        page.get_by_label("Choose broken-one").check()
        button(page, "Requeue 1").click()
        expect(page.get_by_text("1 chosen")).to_have_count(0)
        until(
            "it ran a second time", lambda: client.get_task("broken-one").run == 2, 60
        )
        page.get_by_label("Choose broken-two").check()
        button(page, "Discard 1").click()
        button(page.get_by_role("dialog"), "Discard").click()
        expect(row(page, "Dead letters", "broken-two")).to_have_count(0)
    assert client.get_task("broken-two").dead_letter is None


def test_a_model_is_loaded_kept_and_unloaded(pages: Dashboard, client: Client) -> None:
    with pages.page("/models") as page:
        button(page, "Load a model").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Model").fill("oil")
        worker = next(w for w in client.workers() if "paint" in w.job_types)
        dialog.get_by_label("Worker").select_option(worker.worker_id)
        is_open_to_all(page)
        button(dialog, "Load").click()
        oil = row(page, "Models on workers", "oil")
        expect(oil).to_contain_text("loaded")
        oil.get_by_role("button", name=re.compile("^Pin")).click()
        expect(oil).to_contain_text("pinned")
        oil.get_by_role("button", name="Unpin").click()
        expect(oil.get_by_role("button", name=re.compile("^Pin"))).to_be_visible()
        oil.get_by_role("button", name="Unload").click()
        button(page.get_by_role("dialog"), "Unload").click()
        expect(row(page, "Models on workers", "oil")).to_have_count(0)
        is_open_to_all(page)


def test_queues_are_paused_and_schedules_made(pages: Dashboard, client: Client) -> None:
    with pages.page("/queues") as page:
        expect(row(page, "Job types", "engrave")).to_be_visible()
        button(page, "Pause engrave").click()
        expect(row(page, "Job types", "engrave")).to_contain_text("paused")
        button(page, "Resume engrave").click()
        expect(row(page, "Job types", "engrave")).to_contain_text("open")
        button(page, "Change echo").click()
        page.get_by_role("dialog").get_by_label("Keep results for").fill("60")
        button(page.get_by_role("dialog"), "Save").click()
        expect(row(page, "Job types", "echo")).to_contain_text("1 min")
        is_open_to_all(page)
        page.goto(f"{pages.cluster.url}/ui/schedules")
        expect(page.get_by_text("No schedules yet")).to_be_visible()
        button(page, "Create a schedule").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name").fill("nightly")
        dialog.get_by_label("When").fill("0 3 * * *")
        dialog.get_by_label("Job type").select_option("echo")
        dialog.get_by_label("Input").fill('{"message": "good morning"}')
        button(dialog, "Create").click()
        nightly = row(page, "Schedules", "nightly")
        expect(nightly).to_contain_text("At 03:00")
        is_open_to_all(page)
        button(page, "Run now nightly").click()
        expect(region(page, "Result")).to_contain_text("good morning")
        page.goto(f"{pages.cluster.url}/ui/schedules")
        row(page, "Schedules", "nightly").focus()
        page.keyboard.press("Enter")
        expect(region(page, "Next times").get_by_role("listitem")).to_have_count(5)
        expect(region(page, "Next times")).to_contain_text(re.compile("in .*(h|min)"))
        last = row(page, "Last runs", "run by hand")
        expect(last).to_contain_text("completed")
        is_open_to_all(page)
        last.get_by_role("link").click()
        expect(region(page, "Result")).to_contain_text("good morning")
        page.go_back()
        button(page, "Pause").click()
        expect(region(page, "Next times")).to_contain_text("It is paused")
        button(page, "Delete").click()
        button(page.get_by_role("dialog"), "Delete").click()
        expect(page.get_by_text("No schedules yet")).to_be_visible()


def test_what_would_be_is_compared(pages: Dashboard) -> None:
    with pages.page("/simulate") as page:
        page.get_by_label("With these workers added").fill("2x24GB")
        button(page, "Simulate").click()
        expect(page.locator(".scenarios h3").first).to_contain_text("Mean time")
        scenarios = page.get_by_role("table", name="Scenarios").locator("tbody tr")
        expect(scenarios).to_have_count(2)
        expect(page.locator(".curves path")).to_have_count(2)
        is_open_to_all(page)


def test_a_key_is_made_shown_once_and_revoked(pages: Dashboard) -> None:
    with pages.page("/keys") as page:
        button(page, "Create a key").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Whose it is").fill("ann")
        dialog.get_by_label("What it may").select_option("read")
        button(dialog, "Create").click()
        text = dialog.locator(".secret code").inner_text()
        is_open_to_all(page)
        button(dialog, "I have it").click()
        expect(page.get_by_text(text)).to_have_count(0)
        with pages.page("/tasks", key=text) as other:
            expect(row(other, "Tasks", "engrave")).to_be_visible()
            expect(other.get_by_role("link", name="Submit")).to_have_count(0)
            expect(other.get_by_role("checkbox")).to_have_count(0)
            other.goto(f"{pages.cluster.url}/ui/tasks/patience")
            expect(other.locator(".headline")).to_be_visible()
            expect(button(other, "Cancel")).to_have_count(0)
        button(page, "Revoke the key of ann").click()
        button(page.get_by_role("dialog"), "Revoke").click()
        expect(row(page, "Keys", "ann")).to_contain_text("revoked")
        is_open_to_all(page)
        button(page, "Make a join token").click()
        button(dialog, "Make").click()
        expect(dialog.locator(".secret code")).not_to_be_empty()
        button(dialog, "I have it").click()
        expect(dialog).to_have_count(0)

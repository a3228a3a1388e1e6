"""`corral top`: one picture on paper, and the screen with its keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, RichLog, Static

from corral.cli.top import cells, picture
from corral.cli.top.screen import Top
from corral.cli.top.sorted_table import Pane
from corral.client import Client, Patience
from tests.unit.cli import top_cluster
from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import DROP, StandIn, fault

SMALL, LARGE = (80, 24), (200, 50)
FIRST = top_cluster.WAITING[0]["task_id"]


@pytest.fixture
def told(manager: StandIn) -> StandIn:
    top_cluster.tell(manager)
    return manager


@pytest.fixture
def client(told: StandIn) -> Iterator[Client]:
    # One try each, as the command has it: the feed itself tries again.
    with Client(told.url, "corral_k_s", patience=Patience(0.0, 0.0)) as made:
        yield made


@pytest.fixture
def app(client: Client) -> Top:
    return Top(client, client, picture.read(client))


async def until(pilot: Pilot[Any], what: str, check: Callable[[], Any]) -> None:
    """Until something is so; the screen gets its turn in between."""
    for _ in range(1200):
        if check():
            return
        await pilot.pause(0.05)
    raise AssertionError(f"not within a minute: {what}")


def text(app: Top, selector: str) -> str:
    return str(app.screen_stack[0].query_one(selector, Static).visual)


def column(app: Top, pane: str, number: int) -> list[str]:
    table = app.screen_stack[0].query_one(f"#{pane}", Pane).table
    return [str(table.get_row_at(n)[number]).strip() for n in range(table.row_count)]


def is_shown(app: Top, pane: str) -> bool:
    return app.screen_stack[0].query_one(f"#{pane}").region.height > 1


def test_one_picture_is_printed_whole(told: StandIn, corral: Corral) -> None:
    ran = corral("top", "--once")
    assert ran.code == 0, ran
    assert "2/3 nodes" in ran.out
    assert "gpu-3 has not been heard for 95 s" in ran.out
    lines = [line.split() for line in ran.out.splitlines() if line]
    states = [line[2] for line in lines if line[0].startswith("01a1e022")]
    assert states == [*["running"] * 3, *["queued"] * 3, "completed", "failed"]
    assert "out_of_memory: needs 92 GB" in ran.out
    assert "71/80 GB" in ran.out
    assert "llama-3-8b" in ran.out


def test_one_picture_as_json_has_everything(told: StandIn, corral: Corral) -> None:
    told_all = json.loads(corral("top", "--once", "--json").out)
    assert [n["hostname"] for n in told_all["nodes"]] == ["gpu-1", "gpu-2", "gpu-3"]
    assert len(told_all["workers"]) == 3
    assert [t["status"] for t in told_all["listed_tasks"]].count("queued") == 3


def test_without_a_terminal_it_says_what_to_do(told: StandIn, corral: Corral) -> None:
    ran = corral("top")
    assert ran.code == 1
    assert "--once" in ran.err
    assert corral("top", "--json").code == 2


def test_a_wrong_key_or_no_manager_is_said_at_once(
    told: StandIn, corral: Corral
) -> None:
    told.on("GET /cluster/status", fault("unauthenticated", 401))
    assert corral("top", "--once").code == 1
    told.on("GET /cluster/status", DROP)
    assert corral("top", "--once").code == 3


async def test_a_small_screen_has_gpus_and_tasks_first(app: Top) -> None:
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        await until(pilot, "gpus", lambda: is_shown(app, "gpus"))
        assert is_shown(app, "tasks")
        assert not is_shown(app, "workers")
        assert column(app, "gpus", 6) == [
            *("train-1", "train-1", "llama", "free", "offline")
        ]
        assert "97 %" in column(app, "gpus", 2)[0]
        # What a lost node told last is no longer true.
        assert column(app, "gpus", 2)[4] == "-"
        assert "degraded" in text(app, "#head")
        assert "gpu-3 has not been heard" in text(app, "#trouble")
        await pilot.press("2")
        await until(pilot, "workers", lambda: is_shown(app, "workers"))
        assert not is_shown(app, "tasks")
        assert column(app, "workers", 0) == ["echo", "train-1", "llama"]
        # A key for tasks does nothing where no task can be seen.
        await pilot.press("c")
        assert len(app.screen_stack) == 1
        await pilot.press("tab")
        await until(pilot, "nodes", lambda: is_shown(app, "nodes"))
        assert column(app, "nodes", 1) == ["online", "online", "offline"]


async def test_a_large_screen_has_all_lists(app: Top) -> None:
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        panes = ("gpus", "nodes", "workers", "tasks")
        await until(pilot, "all", lambda: all(is_shown(app, p) for p in panes))
        regions = [app.query_one(f"#{pane}").region for pane in panes]
        assert not any(
            a.overlaps(b) for n, a in enumerate(regions) for b in regions[n + 1 :]
        )
        assert FIRST in column(app, "tasks", 0)
        await pilot.resize_terminal(*SMALL)
        await until(pilot, "small", lambda: not is_shown(app, "workers"))


async def test_a_filter_holds_for_all_lists(app: Top) -> None:
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        await pilot.press("slash", *"gpu-2")
        await until(pilot, "one node", lambda: column(app, "nodes", 0) == ["gpu-2"])
        assert column(app, "tasks", 1) == ["generate", "generate"]
        assert column(app, "workers", 0) == ["llama"]
        await pilot.press("enter")
        assert not app.query_one("#filter").display
        await pilot.press("escape")
        await until(pilot, "all", lambda: len(column(app, "tasks", 0)) == 8)
        await pilot.press("slash", *"team=vision")
        await until(pilot, "labels", lambda: column(app, "tasks", 0) == [FIRST])


async def test_what_is_typed_at_once_after_the_slash_is_the_filter(app: Top) -> None:
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        # As a terminal sends what was typed or pasted: all in one go.
        for key, said in (("slash", "/"), *((c, c) for c in "llama"), ("slash", "/")):
            app.post_message(events.Key(key, said))
        box = app.query_one("#filter", Input)
        await until(pilot, "all of it", lambda: box.value == "llama/")
        assert len(app.screen_stack) == 1, "the l opened no log"


async def test_keys_sort_turn_and_leave_out_what_ended(app: Top) -> None:
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        await pilot.press("down", "down", "down")
        await pilot.press("s", "s")
        kinds = column(app, "tasks", 1)
        assert kinds == sorted(kinds)
        # The cursor stays on its task.
        chosen = app.query_one("#tasks", Pane).chosen
        assert chosen is not None
        assert chosen.task.task_id == FIRST
        await pilot.press("r")
        assert column(app, "tasks", 1) == sorted(kinds, reverse=True)
        await pilot.press("e")
        states = column(app, "tasks", 2)
        assert sorted(set(states)) == ["queued", "running"]


async def test_the_task_under_the_cursor_says_why_it_waits(app: Top) -> None:
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        await pilot.press("down", "down", "down")
        words = "waits: all 1 worker(s) are busy"
        await until(pilot, words, lambda: words in text(app, "#about"))


async def test_cancel_asks_first(app: Top, told: StandIn) -> None:
    call = f"POST /tasks/{FIRST}/cancel"
    told.on(call, {"task_id": FIRST, "status": "cancelled"})
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        await pilot.press("down", "down", "down", "c")
        await until(pilot, "a question", lambda: len(app.screen_stack) == 2)
        await pilot.press("n")
        await until(pilot, "no question", lambda: len(app.screen_stack) == 1)
        assert not told.asked(call)
        await pilot.press("c")
        await until(pilot, "a question", lambda: len(app.screen_stack) == 2)
        await pilot.press("y")
        await until(pilot, "cancelled", lambda: told.asked(call))


async def test_explain_log_and_help_lie_over_the_lists(app: Top, told: StandIn) -> None:
    why = {"task_id": FIRST, "status": "queued", "headline": "it waits for a card"}
    told.on(f"GET /tasks/{FIRST}/explain", why)
    line = {"text": "epoch 1\x1b[2J", "stream": "stdout"}
    told.on(f"GET /tasks/{FIRST}/logs", {"lines": [line], "done": True})
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        await pilot.press("down", "down", "down", "x")
        await until(pilot, "explained", lambda: len(app.screen_stack) == 2)
        await pilot.press("escape", "l")
        await until(pilot, "a log", lambda: app.screen.query(RichLog))
        log = app.screen.query_one(RichLog)

        def lines() -> list[str]:
            return [strip.text.strip() for strip in log.lines]

        await until(pilot, "lines", lambda: "(the task has ended)" in lines())
        assert lines()[1] == "epoch 1 [2J"
        await pilot.press("escape", "question_mark")
        await until(pilot, "help", lambda: len(app.screen_stack) == 2)
        await pilot.press("q")
        await until(pilot, "no help", lambda: len(app.screen_stack) == 1)
        await pilot.press("q")
    assert app.return_value is None


async def test_a_manager_that_is_away_keeps_the_last_picture(
    app: Top, told: StandIn
) -> None:
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        told.on("GET /cluster/status", DROP)
        lost = "connection lost, trying again"
        await until(pilot, lost, lambda: lost in text(app, "#trouble"))
        assert len(column(app, "tasks", 0)) == 8
        away = [{**n, "gpus": [], "cpu_percent": None} for n in top_cluster.NODES]
        told.on("GET /nodes", {"nodes": away})
        told.on("GET /cluster/status", top_cluster.STATUS)
        await until(pilot, "back", lambda: lost not in text(app, "#trouble"))
        # A manager that has just started has heard of no card yet.
        assert set(column(app, "gpus", 2)) == {"-"}


async def test_a_node_that_is_lost_and_comes_back_is_shown_so_while_it_runs(
    app: Top, told: StandIn
) -> None:
    first, second, third = top_cluster.NODES
    lost = {**second, "status": "offline", "last_heartbeat": top_cluster.ago(30)}
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        assert column(app, "nodes", 1) == ["online", "online", "offline"]
        told.on("GET /nodes", {"nodes": [first, lost, third]})
        states = ["online", "offline", "offline"]
        await until(pilot, "lost", lambda: column(app, "nodes", 1) == states)
        # Figures of its cards are no longer true; its tasks stay to be seen.
        assert column(app, "gpus", 3)[2:4] == ["-", "-"]
        assert len(column(app, "tasks", 0)) == 8
        told.on("GET /nodes", {"nodes": [first, second, {**third, "status": "online"}]})
        await until(pilot, "back", lambda: set(column(app, "nodes", 1)) == {"online"})
        assert "54 %" in column(app, "gpus", 3)[2]
        # One that has left is gone.
        told.on("GET /nodes", {"nodes": [first]})
        await until(pilot, "left", lambda: column(app, "nodes", 0) == ["gpu-1"])


async def test_a_key_that_is_revoked_ends_it(app: Top, told: StandIn) -> None:
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, "rows", lambda: column(app, "tasks", 0))
        told.on("GET /cluster/status", fault("unauthenticated", 401, "revoked"))
        await until(pilot, "the end", lambda: app.return_value is not None)
    assert app.return_value is not None
    assert app.return_value.message == "revoked"


def test_bars_and_trends_show_shares() -> None:
    assert cells.bar(50, 4).plain == "██░░"
    assert cells.bar(56.25, 8, "56 %").plain == "████▌░░░ 56 %"
    assert cells.bar(250, 4).plain == "████"
    assert cells.bar(None, 4, "-").plain == "     -"
    assert cells.trend([0, 50, None, 100], 6, 100).plain == "  ▁▅ █"
    assert cells.trend([0, 0], 2).plain == "▁▁"
    assert cells.colour(95) == "red"

"""Tasks that say what they need: where they fit, who goes first, what is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from corral.core.tasks.needs import LEAST, WHOLE, Need
from corral.core.tasks.options import Gang
from corral.scheduler.events import (
    AttemptEnded,
    CardOffer,
    NodeOffers,
    NodeWithdrawn,
    OrderClosed,
    OutOfMemory,
    TasksQueued,
    TasksRan,
    TasksTaken,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.plan import PlannedOrder
from corral.scheduler.scheduler import Policy, Scheduler
from corral.scheduler.snapshot import Snapshot, restore

NOW = 1_000_000.0
GPU = 24_576


def node(name: str, gpus: int = 0, mb: int = GPU, **more: Any) -> NodeOffers:
    cards = tuple(
        CardOffer(f"{name}-g{n}", "A", "nvidia", mb, **more) for n in range(gpus)
    )
    return NodeOffers(name, 8 * WHOLE, 32_768, cards)


def cluster(*nodes: NodeOffers, slots: int = 8, **more: Any) -> Scheduler:
    scheduler = Scheduler(Policy(**more))
    for offer in nodes:
        scheduler.apply(offer)
        types = frozenset({"a", "b"})
        scheduler.apply(WorkerReady(f"w-{offer.node_id}", offer.node_id, types, slots))
    scheduler.apply(TasksRan("a", "w", 1, 10.0))
    scheduler.apply(TasksRan("b", "w", 1, 10.0))
    return scheduler


def cards(count: int = 1, share: int = WHOLE, mb: int = 0) -> Need:
    return Need(gpus=count, share=share, gpu_mb=mb)


def task(name: str, need: Need | None, seq: int = 0, **more: Any) -> WaitingTask:
    made = WaitingTask(name, 1, "a", seq or 50, arrived=NOW, need=need)
    return replace(made, **more)


def queue(scheduler: Scheduler, *tasks: WaitingTask) -> dict[str, PlannedOrder]:
    scheduler.apply(TasksQueued(tasks))
    return plan(scheduler)


def plan(scheduler: Scheduler, now: float = NOW) -> dict[str, PlannedOrder]:
    return {t.task_id: o for o in scheduler.plan(now).orders for t in o.tasks}


def end(scheduler: Scheduler, order: PlannedOrder) -> None:
    for ended in order.tasks:
        assert scheduler.counts(ended.task_id)
        scheduler.apply(AttemptEnded(ended.task_id, 1.0))
    scheduler.apply(OrderClosed(order.worker_id))


def test_a_card_is_given_once_and_again_when_it_comes_back() -> None:
    scheduler = cluster(node("n", 2))
    orders = queue(scheduler, *(task(f"t{n}", cards(), n + 1) for n in range(3)))
    assert sorted(orders) == ["t0", "t1"]
    assert {o.cards for o in orders.values()} == {("n-g0",), ("n-g1",)}
    reason = scheduler.why("t2", NOW)
    assert reason is not None
    assert (reason.reason, reason.details["lacks"]) == ("in_use", "gpu_share")
    end(scheduler, orders["t0"])
    assert plan(scheduler)["t2"].cards == orders["t0"].cards


def test_parts_of_a_card_add_up_to_one() -> None:
    scheduler = cluster(node("n", 1))
    half = cards(1, 500, 8_000)
    orders = queue(scheduler, *(task(f"t{n}", half, n + 1) for n in range(3)))
    assert sorted(orders) == ["t0", "t1"]


def test_memory_alone_shares_a_card_but_not_one_that_is_taken_whole() -> None:
    scheduler = cluster(node("n", 1))
    some = cards(1, LEAST, 8_000)
    orders = queue(scheduler, *(task(f"t{n}", some, n + 1) for n in range(4)))
    assert sorted(orders) == ["t0", "t1", "t2"]
    for order in orders.values():
        end(scheduler, order)
    assert sorted(plan(scheduler)) == ["t3"]
    assert not queue(scheduler, task("whole", cards(), 9))


def test_processors_and_memory_are_counted_too() -> None:
    scheduler = cluster(node("n"))
    orders = queue(scheduler, *(task(f"t{n}", Need(3_000), n + 1) for n in range(3)))
    assert sorted(orders) == ["t0", "t1"]
    orders |= queue(scheduler, task("m", Need(memory_mb=40_000), 9))
    assert "m" not in orders
    explained = scheduler.explain("m", NOW)
    assert explained is not None
    assert explained.reason is not None
    assert explained.reason.reason == "too_little"
    assert "7.1 GiB of memory short" in explained.reason.message
    assert explained.changes[0].kind == "ask_less"


def test_what_another_process_uses_is_not_given_out() -> None:
    scheduler = cluster(node("n", 1, foreign_mb=20_000))
    assert not queue(scheduler, task("t", cards(1, WHOLE, 8_000)))
    reason = scheduler.why("t", NOW)
    assert reason is not None
    assert reason.reason == "foreign_memory"
    scheduler.apply(node("n", 1))
    assert plan(scheduler)["t"].cards == ("n-g0",)


def test_a_workers_own_cards_are_for_its_tasks_alone() -> None:
    mine = CardOffer("own", "A", "nvidia", GPU, holder="w-n")
    scheduler = cluster(NodeOffers("n", 8_000, 32_768, (mine, *node("n", 1).cards)))
    scheduler.apply(WorkerReady("other", "n", frozenset({"a"}), 8))
    tasks = [task(f"t{n}", cards(), n + 1) for n in range(3)]
    orders = queue(scheduler, *tasks)
    got = {(o.worker_id, o.cards) for o in orders.values()}
    assert got == {("w-n", ("own",)), ("other", ("n-g0",))}


def test_a_card_of_another_vendor_will_not_do() -> None:
    scheduler = cluster(node("n", 1))
    assert not queue(scheduler, task("t", Need(gpus=1, share=WHOLE, vendor="amd")))
    reason = scheduler.why("t", NOW)
    assert reason is not None
    assert reason.details["lacks"] == "gpu_kind"


def test_several_cards_come_from_one_node_where_least_is_lost() -> None:
    scheduler = cluster(node("large", 8), node("small", 2))
    orders = queue(scheduler, task("two", cards(2)))
    assert orders["two"].worker_id == "w-small"
    assert queue(scheduler, task("eight", cards(8)))["eight"].worker_id == "w-large"


def test_the_large_one_is_not_starved_by_small_ones_that_keep_coming() -> None:
    scheduler = cluster(node("n", 2))
    small = [task(f"s{n}", cards(), n + 1) for n in range(40)]
    running = list(queue(scheduler, *small[:2]).values())
    assert not queue(scheduler, task("large", cards(2), 3))
    now = NOW
    for newcomer in small[2:]:
        now += 60.0
        end(scheduler, running.pop(0))
        newcomer = replace(newcomer, arrived=now, seq=newcomer.seq + 10)
        scheduler.apply(TasksQueued((newcomer,)))
        found = plan(scheduler, now)
        if "large" in found:
            break
        running += found.values()
    else:
        pytest.fail("it never started")
    assert now - NOW < 1_200, "once it is late, nothing new goes before it"


def test_a_critical_one_waits_for_nothing_but_what_runs() -> None:
    scheduler = cluster(node("n", 2))
    first = queue(scheduler, task("s0", cards(), 1), task("s1", cards(), 2))
    assert not queue(scheduler, task("c", cards(2), 3, job_type="b", priority=100))
    end(scheduler, first["s0"])
    assert not queue(scheduler, task("s2", cards(), 4))
    reason = scheduler.why("s2", NOW)
    assert reason is not None
    assert (reason.reason, reason.details["task_id"]) == ("kept", "c")
    end(scheduler, first["s1"])
    assert list(plan(scheduler)) == ["c"]


def test_within_a_job_type_priority_holds_whatever_the_size() -> None:
    scheduler = cluster(node("n", 2))
    first = queue(scheduler, task("s0", cards(), 1), task("s1", cards(), 2))
    assert not queue(scheduler, task("high", cards(2), 3, priority=10))
    end(scheduler, first["s0"])
    assert not queue(scheduler, task("low", cards(), 4))
    assert queue(scheduler, task("other", cards(), 5, job_type="b")), "others may"


def test_a_gang_starts_whole_or_not_at_all() -> None:
    scheduler = cluster(node("n1", 8), node("n2", 8), slots=2)
    (taken,) = queue(scheduler, task("t", cards(8), 1)).values()
    members = [
        task(f"m{n}", cards(8), n + 2, gang=Gang("train", n, 2)) for n in range(2)
    ]
    assert not queue(scheduler, members[0])
    reason = scheduler.why("m0", NOW)
    assert reason is not None
    assert reason.reason == "gang_incomplete"
    assert not queue(scheduler, members[1])
    reason = scheduler.why("m1", NOW)
    assert reason is not None
    assert (reason.reason, reason.details["nodes"]) == ("gang_room", ["n2"])
    end(scheduler, taken)
    orders = plan(scheduler)
    assert {o.worker_id for o in orders.values()} == {"w-n1", "w-n2"}
    assert {o.lead for o in orders.values()} == {orders["m0"].worker_id}
    assert all(len(o.cards) == 8 for o in orders.values())


def test_a_gang_that_is_not_complete_keeps_no_node_from_others() -> None:
    scheduler = cluster(node("n1", 8), node("n2", 8))
    alone = task("m0", cards(8), 1, gang=Gang("train", 0, 2), priority=5)
    assert not queue(scheduler, alone)
    others = [task(f"t{n}", cards(8), n + 2) for n in range(2)]
    assert set(queue(scheduler, *others)) == {"t0", "t1"}


def test_a_gang_without_needs_goes_to_as_many_nodes() -> None:
    scheduler = cluster(node("n1"), node("n2"))
    members = [task(f"m{n}", None, n + 1, gang=Gang("g", n, 2)) for n in range(2)]
    assert len({o.worker_id for o in queue(scheduler, *members).values()}) == 2


def test_after_a_restart_nothing_is_given_that_a_running_task_has() -> None:
    scheduler = Scheduler()
    was = task("was", cards())
    there = TasksTaken("w-n", (was,), 0.0, "n", ("n-g1",))
    scheduler.apply(there)
    scheduler.apply(WorkerReady("w-n", "n", frozenset({"a"}), 8, 1))
    assert not queue(scheduler, task("t", cards())), "nobody knows yet what there is"
    scheduler.apply(node("n", 2))
    assert plan(scheduler)["t"].cards == ("n-g0",)
    scheduler.apply(AttemptEnded("was"))
    assert queue(scheduler, task("next", cards()))["next"].cards == ("n-g1",)


def test_a_node_that_tells_again_still_counts_what_runs_there() -> None:
    scheduler = cluster(node("n", 1))
    assert queue(scheduler, task("t", cards(), 1))
    scheduler.apply(NodeWithdrawn("n"))
    scheduler.apply(node("n", 1))
    assert not queue(scheduler, task("u", cards(), 2))


def test_out_of_memory_asks_for_a_larger_card_from_then_on() -> None:
    scheduler = cluster(node("small", 1), node("large", 1, 81_920))
    need = cards(1, WHOLE, 4_000)
    (order,) = queue(scheduler, task("t", need, 1)).values()
    assert order.worker_id == "w-small"
    scheduler.apply(OutOfMemory("t", "a", None, order.worker_id))
    end(scheduler, order)
    again = queue(scheduler, task("t", need, 1, attempt=2))
    assert again["t"].worker_id == "w-large"
    assert not queue(scheduler, task("like", need, 2)), "it is known of all like it"
    assert queue(scheduler, task("else", need, 3, job_type="b"))


def test_no_worker_is_asked_for_where_only_cards_are_missing() -> None:
    scheduler = cluster(node("n", 1))
    queue(scheduler, task("t", cards(), 1), task("u", cards(), 2))
    assert scheduler.demands(NOW) == ()
    narrow = cluster(node("n", 2), slots=1)
    queue(narrow, task("t", cards(), 1), task("u", cards(), 2))
    (demand,) = narrow.demands(NOW)
    assert (demand.job_type, demand.tasks) == ("a", 1)


def test_a_snapshot_goes_on_as_the_scheduler_would() -> None:
    scheduler = cluster(node("n", 2), node("m", 4))
    tasks = [task(f"t{n}", cards(1, 600, 9_000), n + 1) for n in range(9)]
    orders = queue(scheduler, *tasks)
    twin = restore(list(Snapshot(scheduler).lines()))
    for one in (scheduler, twin):
        end(one, orders["t0"])
    assert plan(scheduler) == plan(twin)

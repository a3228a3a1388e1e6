"""Checks the cluster's own history after a fault: nothing lost, nothing twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from corral.client import Client

TERMINAL = {"completed", "failed", "error", "cancelled", "timed_out"}


def settlements(client: Client, task_ids: Sequence[str]) -> dict[str, list[str]]:
    """The states each task was settled to, in order, from cluster_events."""
    wanted = set(task_ids)
    told: dict[str, list[str]] = defaultdict(list)
    after = 1
    while True:
        page = client.events(after=after, limit=1000)
        for event in page.events:
            if event.event_type == "tasks_settled":
                states = event.data["states"]
                for task_id, state in zip(event.task_ids, states, strict=True):
                    if task_id in wanted:
                        told[task_id].append(state)
        if not page.events:
            return told
        after = max(event.seq for event in page.events)


def check_exactly_once(client: Client, task_ids: Sequence[str]) -> None:
    """Every task completed, and was settled to a terminal state exactly once."""
    assert len(set(task_ids)) == len(task_ids)
    done = client.wait_many(task_ids, timeout=90)
    assert {t.task_id for t in done} == set(task_ids)
    assert {t.status for t in done} == {"completed"}
    history = settlements(client, task_ids)
    ends = {t: [s for s in states if s in TERMINAL] for t, states in history.items()}
    assert set(ends) == set(task_ids)
    twice = {task: states for task, states in ends.items() if len(states) != 1}
    assert not twice

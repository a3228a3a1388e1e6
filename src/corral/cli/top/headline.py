"""The lines of `corral top` that are no list: the whole cluster, and one task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.cli.terminal import output
from corral.cli.top import cells
from corral.cli.top.picture import ClusterView, FigureHistory
from corral.cli.words import task as task_words

if TYPE_CHECKING:
    from rich.text import Text

    from corral.wire.tasks import TaskDetail

_TREND = 16
_BAR = 20


def cluster(picture: ClusterView, history: FigureHistory) -> Text:
    """How the cluster does, in two lines."""
    from rich.text import Text

    told, status = picture.overview, picture.overview.status
    word = told.health.status if told.health else status.health or status.status
    text = Text(" ").append("corral ", "bold")
    text.append(f"{word}", f"bold {output.style_of(word) or 'red'}")
    text.append(f"  {status.online_nodes}/{status.total_nodes} nodes")
    text.append(f"  {status.active_workers}/{status.total_workers} workers")
    if status.gpu_utilization is not None:
        text.append(f"  GPU {status.gpu_utilization:.0f} %")
    text.append(f"  up {output.took(status.uptime_s)}", "dim")
    text.append(f"  {picture.at.astimezone():%H:%M:%S}", "dim")
    text.append(f"\n {status.running_tasks} running", output.style_of("running"))
    text.append(f"  {status.queued_tasks} waiting ", output.style_of("queued"))
    text.append(cells.trend(history.line("cluster", "waiting"), _TREND))
    text.append(f"  {history.per_s:.1f}/s ended ")
    text.append(cells.trend(history.line("cluster", "ended"), _TREND))
    return text


def trouble(picture: ClusterView) -> str:
    """What is wrong, worst first; nothing when nothing is."""
    told = picture.overview
    found = [r.title or r.rule for r in told.health.reasons] if told.health else []
    open_alerts = [a for a in told.alerts or () if a.status == "open"]
    found += [a.title or a.rule for a in open_alerts]
    return "; ".join(dict.fromkeys(found))


def counts(picture: ClusterView) -> str:
    """How many tasks are in which state."""
    status = picture.overview.status
    said = [f"{status.running_tasks} running", f"{status.queued_tasks} waiting"]
    names = ("completed", "failed", "timed_out", "cancelled")
    said += [f"{n} {s}" for s in names if (n := status.tasks.get(s))]
    return ", ".join(said)


def about(task: TaskDetail) -> Text:
    """The one thing to know about a task now."""
    from rich.text import Text

    text = Text(" ").append(f"{task.task_id[-8:]} ", "bold")
    if task.waiting is not None:
        text.append(f"waits: {output.cell(task_words.waits(task))}", "yellow")
    elif task.error is not None:
        text.append(output.cell(task_words.error(task.error)), "red")
    elif task.progress is not None and task.progress.fraction is not None:
        percent = task.progress.fraction * 100
        text.append(cells.bar(percent, _BAR, f"{percent:.0f} %"))
        text.append(f"  {output.cell(task.progress.message)}")
    else:
        text.append(task.status, output.style_of(task.status))
    if task.status == "queued" and task.estimated_start is not None:
        text.append(f"  starts in about {output.took(task.estimated_start.in_s)}")
    elif task.status == "running" and task.estimated_duration is not None:
        text.append(f"  should take {output.took(task.estimated_duration)}", "dim")
    text.append(f"  {task_words.labels(task)}", "dim")
    return text

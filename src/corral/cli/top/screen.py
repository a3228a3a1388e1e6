"""The screen of `corral top`: lists that follow the cluster, one above the other or
side by side, and the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.actions import SkipAction
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import DataTable, Footer, Input, Static

from corral.cli.top import columns, headline
from corral.cli.top.dialog import HELP, ConfirmDialog, LogView, TextDialog, explained
from corral.cli.top.picture import ClusterView, FigureHistory
from corral.cli.top.refresh import ClusterViewReader, News, ViewFailed
from corral.cli.top.sorted_table import Pane
from corral.errors import CorralError

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.tasks import TaskInfo


WIDE_COLUMNS = 150
WIDE_ROWS = 36

CSS = """
#head { height: 2; }
#trouble { height: 1; color: $warning; text-overflow: ellipsis; text-wrap: nowrap; }
#trouble.lost { background: $error; color: $text; text-style: bold; }
#about { height: 1; text-overflow: ellipsis; text-wrap: nowrap; }
#filter { display: none; height: 1; border: none; padding: 0 1; }
#lists { height: 1fr; }
Pane { height: 1fr; }
.title { height: 1; background: $panel; color: $text-muted; }
.focused .title { background: $primary-darken-2; color: $text; }
DataTable { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0;
       background: $background; }
DataTable > .datatable--header { background: $background; color: $text-muted;
       text-style: none; }

.small #lists { layout: vertical; }
.small #gpus { height: auto; max-height: 8; }
.small #gpus DataTable { height: auto; max-height: 7; }
.small #tasks, .small #workers, .small #nodes { display: none; }
.small .front { display: block !important; }

.wide #lists { layout: grid; grid-size: 2 3; grid-columns: 1fr 1fr;
       grid-rows: 1fr 1fr 2fr; grid-gutter: 0 2; }
.wide #gpus { row-span: 2; }
.wide #tasks { column-span: 2; }
.wide.bare #lists { grid-size: 2 2; grid-rows: 1fr 2fr; }

Overlay { align: center middle; }
#box { width: 100%; max-width: 150; height: auto; max-height: 90%;
       background: $surface; border: round $accent; padding: 0 1; }
#box.tall { height: 90%; }
.short #box { width: 60; }
#box VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
#log { height: 1fr; background: $surface; scrollbar-size-vertical: 1; }
"""


_ENDED = ("completed", "failed", "timed_out", "cancelled")
_PANES = ("tasks", "workers", "nodes", "gpus")


class Top(App[CorralError | None]):
    """Shows pictures as they come; ends with an error when none can come any more.

    Args:
        looking: A client that gives up soon, for pictures and for what keys do.
        patient: One that outlives a restart of the manager, for logs.
        first: What to show until the next picture is there.
    """

    CSS = CSS
    TITLE = "corral top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", key_display="?"),
        # Before any widget has it, so that the keys after it go where they should.
        Binding("slash", "filter", "Filter", key_display="/", priority=True),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Turn"),
        Binding("x", "explain", "Explain"),
        Binding("l", "log", "Log"),
        Binding("c", "cancel", "Cancel"),
        Binding("e", "ended", "Ended"),
        Binding("tab", "next", "Next", priority=True),
        Binding("q", "quit", "Quit"),
        # For the same reason.
        Binding("enter", "enter", show=False, priority=True),
        Binding("escape", "unfilter", show=False),
        *(
            Binding(str(n), f"go('{name}')", show=False)
            for n, name in enumerate(_PANES, 1)
        ),
    ]

    def __init__(self, looking: Client, patient: Client, first: ClusterView) -> None:
        super().__init__()
        self._looking, self._patient = looking, patient
        self._feed = ClusterViewReader(looking, self._hear)
        self.history = FigureHistory()
        self._picture = first
        self._in_front = "tasks"
        self._shows_ended = True
        self._lost: ViewFailed | None = None
        self._head, self._trouble = Static(id="head"), Static(id="trouble")
        self._about = Static(id="about")
        self._filter = Input(placeholder="words that a row must have", id="filter")
        sheets = (columns.GPUS, columns.NODES, columns.WORKERS, columns.TASKS)
        self._panes: dict[str, Pane[Any]] = {each.name: Pane(each) for each in sheets}

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._trouble
        with Container(id="lists"):
            yield from self._panes.values()
        yield self._about
        yield self._filter
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.history.add(self._picture)
        self.action_go("tasks")
        self._draw()
        self._feed.start()

    def on_unmount(self) -> None:
        self._feed.stop()

    def on_resize(self, event: events.Resize) -> None:
        is_wide = event.size.width >= WIDE_COLUMNS and event.size.height >= WIDE_ROWS
        for screen in self.screen_stack:
            screen.set_class(is_wide, "wide")
            screen.set_class(not is_wide, "small")

    def _hear(self, news: News) -> None:
        """From the feed's thread."""
        self.call_later(self._take, news)

    def _take(self, news: News) -> None:
        if not self.is_running:
            return
        if isinstance(news, ViewFailed):
            if news.is_final:
                self.exit(news.error)
            self._lost = news
            self._draw_trouble()
            return
        self._picture, self._lost = news, None
        self.history.add(news)
        self._draw()

    def _draw(self) -> None:
        told, history = self._picture, self.history
        self._head.update(headline.cluster(told, history))
        self._draw_trouble()
        cards = columns.cards(told, history)
        self._panes["gpus"].display = bool(cards)
        self.screen_stack[0].set_class(not cards, "bare")
        busy = sum(1 for each in cards if each.use)
        self._panes["gpus"].show_rows(cards, f"{len(cards)}, {busy} busy")
        nodes = columns.nodes(told, history)
        self._panes["nodes"].show_rows(nodes, str(len(nodes)))
        workers = columns.workers(told)
        self._panes["workers"].show_rows(workers, str(len(workers)))
        tasks = [t for t in columns.tasks(told) if self._is_wanted(t.task)]
        self._panes["tasks"].show_rows(tasks, headline.counts(told))
        self._draw_about()

    def _is_wanted(self, task: TaskInfo) -> bool:
        return self._shows_ended or task.status not in _ENDED

    def _draw_trouble(self) -> None:
        line = self._trouble
        said = headline.trouble(self._picture)
        if self._lost is not None:
            at = f"{self._picture.at.astimezone():%H:%M:%S}"
            said = f"connection lost, trying again; this is of {at}"
        line.set_class(self._lost is not None, "lost")
        line.display = bool(said)
        line.update(f" {said}")

    def _draw_about(self) -> None:
        """What the picture tells of the task under the cursor, once it does."""
        chosen, told = self._chosen_task(), self._picture.chosen
        self._feed.choose(chosen.task_id if chosen else None)
        is_same = told is not None and chosen and told.task_id == chosen.task_id
        self._about.update(headline.about(told) if told is not None and is_same else "")

    def _chosen_task(self) -> TaskInfo | None:
        chosen = self._panes["tasks"].chosen
        return chosen.task if isinstance(chosen, columns.TaskRow) else None

    def on_data_table_row_highlighted(self, _: DataTable.RowHighlighted) -> None:
        self._draw_about()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        for name in _PANES:
            pane = self._panes[name]
            pane.set_class(pane.table is event.widget, "focused")
            if pane.table is event.widget:
                self._in_front = name

    def on_input_changed(self, event: Input.Changed) -> None:
        for name in _PANES:
            self._panes[name].filter(event.value)

    def action_go(self, name: str) -> None:
        """Show a list and give it the keys; a small screen has room for one more."""
        if name != "gpus":
            for other in _PANES[:3]:
                self._panes[other].set_class(other == name, "front")
        if self._panes[name].display:
            self._in_front = name
            self.screen_stack[0].set_focus(self._panes[name].table)

    def action_next(self) -> None:
        there = [name for name in _PANES if self._panes[name].display or name != "gpus"]
        at = there.index(self._in_front) if self._in_front in there else 0
        self.action_go(there[(at + 1) % len(there)])

    def action_enter(self) -> None:
        """Keep the filter and go back to the list; in a list, explain."""
        if self.focused is self._filter:
            self._filter.display = False
            self.action_go(self._in_front)
        elif len(self.screen_stack) == 1:
            self.action_explain()

    def action_filter(self) -> None:
        if self.focused is self._filter or len(self.screen_stack) > 1:
            raise SkipAction
        self._filter.display = True
        self.screen.set_focus(self._filter)

    def action_unfilter(self) -> None:
        self._filter.value = ""
        self._filter.display = False
        self.action_go(self._in_front)

    def action_sort(self) -> None:
        self._panes[self._in_front].sort_by_next()

    def action_reverse(self) -> None:
        self._panes[self._in_front].reverse()

    def action_ended(self) -> None:
        self._shows_ended = not self._shows_ended
        self._draw()

    async def action_help(self) -> None:
        await self.push_screen(TextDialog("corral top", HELP))

    def action_explain(self) -> None:
        task = self._wanted_task()
        if task is not None:
            is_narrow = self.size.width < WIDE_COLUMNS
            self._ask(
                lambda: explained(self._looking.explain(task.task_id), is_narrow),
                lambda said: self.push_screen(TextDialog(f"Task {task.task_id}", said)),
            )

    def action_log(self) -> None:
        task = self._wanted_task()
        if task is not None:
            title = f"Log of task {task.task_id}"
            self.push_screen(LogView(title, self._patient, task.task_id))

    def action_cancel(self) -> None:
        task = self._wanted_task()
        if task is None:
            return
        if task.status in _ENDED:
            self.notify(f"it is {task.status} already", severity="warning")
            return
        title = f"Cancel {task.task_type} {task.task_id[-8:]}, {task.status}?"
        self.push_screen(
            ConfirmDialog(title), lambda yes: self._cancel(task, bool(yes))
        )

    def _cancel(self, task: TaskInfo, is_sure: bool) -> None:
        if is_sure:
            self._ask(lambda: self._looking.cancel(task.task_id), self._cancelled)

    def _cancelled(self, _: Any) -> None:
        self.notify("cancelled")
        self._feed.wake()

    def _wanted_task(self) -> TaskInfo | None:
        task = self._chosen_task() if self._in_front == "tasks" else None
        if task is None:
            said = "choose a task first: 1 goes to their list"
            self.notify(said, severity="warning")
        return task

    def _ask(self, call: Callable[[], Any], then: Callable[[Any], Any]) -> None:
        """Call the manager without holding up the screen."""

        def work() -> None:
            try:
                said = call()
            except CorralError as error:
                said = error.message
                self.call_later(self.notify, said, severity="error")
            else:
                self.call_later(then, said)

        self.run_worker(work, thread=True)

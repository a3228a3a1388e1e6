"""What `corral top` lays over its lists: help, a question, an explanation, a log."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import RichLog, Static

from corral.cli.tasks import explain
from corral.cli.terminal import output
from corral.errors import CorralError

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.tasks import Explanation

_TAIL = 500

HELP = """\
1 2 3 4      go to tasks, workers, nodes, GPUs (Tab: the next)
↑ ↓ PgUp …   move in the list
/            filter all lists: words that a row must have, as a node's
             name, a type, a state, a label key=value; Esc ends it
s   r        sort by the next column; turn the order round
x or Enter   explain: why the task waits, or why it ran where it did
l            the log of the task, as it comes
c            cancel the task
e            also show tasks that have ended, or not
q            leave

Trends begin when this view does. Figures of a lost node are left out."""


class Overlay(ModalScreen[Any]):
    """A box over the lists, which Esc or q closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Close"),
    ]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = self._title
            box.border_subtitle = "Esc closes"
            yield from self.inside()

    def inside(self) -> ComposeResult:
        raise NotImplementedError


class TextDialog(Overlay):
    """Something to read."""

    def __init__(self, title: str, content: Any) -> None:
        super().__init__(title)
        self._content = content

    def inside(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._content, markup=False)


class ConfirmDialog(Overlay):
    """Yes or no; closed with True for a yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n", "dismiss(False)", "No"),
    ]

    def inside(self) -> ComposeResult:
        self.add_class("short")
        yield Static("y: yes    n: no")


class LogView(Overlay):
    """What a task prints, until the view is closed or the task ends."""

    def __init__(self, title: str, client: Client, task_id: str) -> None:
        super().__init__(title)
        self._client, self._task_id = client, task_id
        self._is_over = threading.Event()
        self._log = RichLog(id="log", wrap=True, markup=False, highlight=False)

    def inside(self) -> ComposeResult:
        yield self._log

    def on_mount(self) -> None:
        self.query_one("#box").add_class("tall")
        self._write(Text("(what it prints comes here)", "dim"))
        threading.Thread(target=self._follow, name="top-log", daemon=True).start()

    def on_unmount(self) -> None:
        self._is_over.set()

    def _follow(self) -> None:
        """In a thread: a line may come in a moment, or never."""
        count = 0
        try:
            for line in self._client.logs(self._task_id, follow=True, tail=_TAIL):
                if self._is_over.is_set():
                    return
                style = "red" if line.stream == "stderr" else ""
                self._say(Text(output.cell(line.text), style))
                count += 1
        except CorralError as error:
            self._say(Text(output.cell(error.message), "bold red"))
            return
        said = "the task has ended" if count else "the task printed nothing"
        self._say(Text(f"({said})", "dim"))

    def _say(self, text: Text) -> None:
        if not self._is_over.is_set():
            self.app.call_later(self._write, text)

    def _write(self, text: Text) -> None:
        if not self._is_over.is_set():
            self._log.write(text)


def explained(found: Explanation, is_narrow: bool) -> Group:
    """An explanation, laid out as `corral explain` does."""
    parts: list[Any] = [Text(output.cell(found.headline), "bold")]
    for grid in explain.grids(found, is_narrow=is_narrow):
        parts += [Text(), grid]
    return Group(*parts)

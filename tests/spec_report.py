"""`make spec`: which items of docs/spec.md are shown by which tests. Runs no test."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([A-E]\d+) \| (.+?) \| ?(.*?) ?\|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SpecItem:
    id: str
    must: str
    note: str


def read_items() -> dict[str, SpecItem]:
    """Every row of docs/spec.md by its id."""
    text = (ROOT / "docs/spec.md").read_text(encoding="utf-8")
    return {row[0]: SpecItem(*row) for row in ROW.findall(text)}


def marked_ids(test: pytest.Item) -> list[str]:
    return [str(arg) for mark in test.iter_markers("spec") for arg in mark.args]


def unknown_marks(tests: Iterable[pytest.Item]) -> list[str]:
    """A line for every mark that names no item of docs/spec.md."""
    items = read_items()
    return [
        f"{test.nodeid}: docs/spec.md has no item {name}"
        for test in tests
        for name in marked_ids(test)
        if name not in items
    ]


class Collector:
    """A pytest plugin that notes the marks of every test that was found."""

    def __init__(self) -> None:
        self.shown: dict[str, set[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for test in session.items:
            for name in marked_ids(test):
                claim = test.nodeid.partition("[")[0]
                self.shown.setdefault(name, set()).add(claim)


def collect() -> dict[str, set[str]]:
    """Test names by item id.

    Raises:
        SystemExit: when the tests cannot be collected, or a mark names no item.
    """
    collector, said = Collector(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main(
            ["--collect-only", "-q", f"--rootdir={ROOT}", str(ROOT / "tests")],
            plugins=[collector],
        )
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(said.getvalue())
        raise SystemExit(1)
    return collector.shown


def report(items: Mapping[str, SpecItem], shown: Mapping[str, set[str]]) -> list[str]:
    """The lines to print: shown items with their tests, then the others."""
    lines = ["Shown:"]
    for item in items.values():
        if item.id in shown:
            lines += [
                *_describe(item),
                *(f"       {t}" for t in sorted(shown[item.id])),
            ]
    lines += ["", "Not shown yet:"]
    for item in items.values():
        if item.id not in shown:
            lines += _describe(item)
    return [*lines, "", f"shown: {len(shown)} of {len(items)}"]


def _describe(item: SpecItem) -> list[str]:
    lines = [f"  {item.id:<4} {item.must}"]
    return [*lines, f"       ({item.note})"] if item.note else lines


if __name__ == "__main__":
    print("\n".join(report(read_items(), collect())))

"""What the documents say of the code: files, classes and words that must be there.

Pages for users may name files of their own; pages about the design may not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.source_tree import (
    ROOT,
    SRC,
    Source,
    name_of,
    package,
    sources,
    statements,
)

DESIGN = ROOT / "docs" / "design"
GLOSSARY = ROOT / "docs" / "glossary.md"
# Old names stand in it on purpose.
MOVES = DESIGN / "moves.md"
READMES = sorted(SRC.rglob("README.md"))
OURS = [
    *sorted(set(DESIGN.glob("*.md")) - {MOVES}),
    GLOSSARY,
    ROOT / "CONTRIBUTING.md",
    *READMES,
]
USERS = [*sorted(set((ROOT / "docs").glob("*.md")) - {GLOSSARY}), ROOT / "README.md"]
ROOMS = frozenset(path.name for path in SRC.iterdir() if path.is_dir())
FOLDERS = frozenset({"bench", "deploy", "docs", "examples", "src", "tests"})

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"([\w./*-]+\.(?:py|js|css|sh|mako))(?:: (\w+))?")
_CLASS = re.compile(r"([A-Z][a-z]\w*)(?:\.(\w+))?(?:\(.*\))?")
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_HOP = re.compile(r"^\| (↩)? ?(\d+)? ?\| `([^`]+)` \|", re.MULTILINE)
_MOVED_TO = re.compile(r"^\| [\w.]+\.[\w.]+ \| ([\w.]+) \|", re.MULTILINE)
_COUNTS = re.compile(r"\*\*(\d+) files, (\d+) returns\.\*\*")
# Classes and functions of others, and of the dashboard's JavaScript; a made-up file.
NOT_OURS = {"ApiError", "Badge", "Depends", "KeyError", "LockFileEx"}
EXAMPLES = {"static/pages/things.js"}

each_page = pytest.mark.parametrize("page", [*OURS, *USERS], ids=name_of)
each_page_of_ours = pytest.mark.parametrize("page", OURS, ids=name_of)


@cache
def quoted(page: Path) -> list[str]:
    """What stands in backticks, outside of blocks of code."""
    return _CODE.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def is_there(name: str, page: Path) -> bool:
    bases = (ROOT, SRC, page.parent)
    if any((base / name).exists() for base in bases):
        return True
    if "*" in name:
        return any(any(base.glob(name)) for base in bases)
    # A README lists files by their names below its folder.
    return page in READMES and any(page.parent.rglob(name))


def files_in(page: Path) -> Iterator[tuple[str, str | None]]:
    """Files and folders a page names, each with the name in it that is meant, if any.

    A bare name is one of ours only on a page of ours.
    """
    for text in quoted(page):
        first, slash, _ = text.partition("/")
        is_path = bool(slash) and first in ROOMS | FOLDERS and "<" not in text
        if (found := _FILE.fullmatch(text)) and (is_path or page in OURS):
            yield found[1], found[2]
        elif is_path and " " not in text:
            yield text, None


@each_page
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = {name for name, _ in files_in(page)} - EXAMPLES
    assert not [name for name in sorted(named) if not is_there(name, page)]


@each_page
def test_every_name_that_is_said_to_be_in_a_file_is_there(page: Path) -> None:
    missing = [
        f"{file}: {name}"
        for file, name in files_in(page)
        if name and not re.search(rf"(def|class) {name}\b", (SRC / file).read_text())
    ]
    assert not missing


@cache
def declared() -> dict[str, set[str]]:
    """Every class, with the names its file uses."""
    found: dict[str, set[str]] = {}
    for path in sources("src", "tests"):
        text = path.read_text(encoding="utf-8")
        if "class " not in text:
            continue
        classes = [n.name for n in statements(path) if isinstance(n, ast.ClassDef)]
        names = set(re.findall(r"\w+", text))
        for name in classes:
            found.setdefault(name, set()).update(names)
    return found


@each_page_of_ours
def test_every_class_that_is_named_exists(page: Path) -> None:
    missing = []
    for text in quoted(page):
        found = _CLASS.fullmatch(text)
        if found is None or found[1] in NOT_OURS or text.isupper():
            continue
        if (found[2] or found[1]) not in declared().get(found[1], set()):
            missing.append(text)
    assert not missing


@each_page
def test_every_module_that_is_named_by_its_import_exists(page: Path) -> None:
    missing = [
        text
        for text in quoted(page)
        if (parts := text.split(".")) and parts[0] == "corral"
        if len(parts) > 2 and parts[1] in ROOMS and not _is_module(parts[1:])
    ]
    assert not missing


def _is_module(parts: list[str]) -> bool:
    place = SRC
    for part in parts:
        if not (place / part).is_dir():
            return (place / f"{part}.py").is_file() or (place / "__init__.py").is_file()
        place /= part
    return True


def test_every_module_that_was_moved_is_where_the_table_says() -> None:
    moved = _MOVED_TO.findall(MOVES.read_text(encoding="utf-8"))
    assert moved
    bases = [ROOT if name.startswith("tests.") else SRC for name in moved]
    places = [b.joinpath(*n.split(".")) for b, n in zip(bases, moved, strict=True)]
    assert not [p for p in places if not (p.is_dir() or p.with_suffix(".py").exists())]


def words_of(source: Source) -> Iterator[str]:
    for part in source.path.removesuffix(".py").split("/"):
        if not part.startswith("__") and not part[0].isdigit():
            yield from part.split("_")


def _plurals(word: str) -> tuple[str, ...]:
    return f"{word}s", f"{word}es", f"{word.removesuffix('y')}ies"


def test_every_word_in_a_module_name_is_in_the_glossary() -> None:
    """As a word that is explained, or among the everyday ones at the end."""
    text = GLOSSARY.read_text(encoding="utf-8").lower()
    explained, _, plain = text.partition("## everyday words")
    known = set(re.findall(r"\w+", " ".join(_BOLD.findall(explained)) + plain))
    known |= {many for word in known for many in _plurals(word)}
    strange = {
        f"{word}: {source.path}"
        for source in package().modules
        for word in words_of(source)
        if word not in known
    }
    assert not "\n".join(sorted(strange))


def test_the_glossary_explains_no_word_twice_in_one_place() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        rows = re.findall(r"^\| (\*\*.*?) \|", section, re.MULTILINE)
        assert len(rows) == len(set(rows))


def test_the_walk_of_a_task_is_as_long_as_it_says() -> None:
    text = (DESIGN / "way.md").read_text(encoding="utf-8")
    hops = _HOP.findall(text)
    rooms = [file.split("/")[0] for _, _, file in hops]
    files, returns, left = list[str](), 0, set[str]()
    for (before, room), (mark, number, file) in zip(
        pairwise([None, *rooms]), hops, strict=True
    ):
        is_return = room != before and room in left
        returns += is_return
        assert bool(mark) == is_return, file
        assert bool(number) == (file not in files), file
        if number:
            files.append(file)
            assert int(number) == len(files)
        left.add(room)
    counted = _COUNTS.search(text)
    assert counted
    assert (int(counted[1]), int(counted[2])) == (len(files), returns)

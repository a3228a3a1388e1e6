"""Counts of what the house rules forbid and the house still has: they may only fall.

Each count says what it counts and how many there are today. One more fails. One less
fails, too, until the number here is lowered: what was won must not be lost again.
`python -m tests.test_ratchets [COUNT...]` lists what is counted.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from textwrap import dedent

import pytest

from tests.source_tree import Assignment, Package, Source, is_name, name_of, package

LONG_LINES = 700
SHORT_LINES = 60
MOST_IN_A_FOLDER = 15
FEWEST_IN_A_FOLDER = 2
LEAST_FIELDS = 5
MOST_PARAMETERS = 6

# Short modules with one importer that are right as they are, each with its reason.
SHORT_ON_PURPOSE: dict[str, str] = {
    "client/job_api/job.py": "in `service` it would load HTTP for `corral.JobSchema`",
    "manager/access/audit.py": "what operators call it; `keys` is long enough",
    "manager/events/history.py": "what was kept is no part of what is live",
    "manager/models/peers.py": "nodes as sources; `catalogue` is long enough",
    "manager/tasks/learned.py": "one idea, and no part of any other",
    "settings/access.py": "one topic of settings, found by its name",
    "settings/alerts.py": "the same",
    "settings/models.py": "the same",
    "settings/retention.py": "the same",
    "settings/scripts.py": "the same",
    "settings/tasks.py": "the same",
    "worker/container/boot.py": "started by its path, in images",
}
# The same for folders with many modules, or with one.
FOLDERS_ON_PURPOSE = {
    "store/migrations/versions": "Alembic's: one module a migration",
}
# Constructors with many parameters, the same.
MANY_ON_PURPOSE = {
    "worker/base.py Context": "public: one keyword, and its type, for each fact",
}
# Words for things we have, and words that only look like gerunds.
FREE_WORDS = {
    "batching",
    "packing",
    "ring",
    "sampling",
    "scaling",
    "setting",
    "tracing",
}
FREE_WORDS |= {"string", "thing"}
# Pairs of classes that are two things, whatever they have in common.
TWICE_ON_PURPOSE = {
    "api/job_api/shapes.py JobOut | client/job_api/job.py Job": (
        "a job as programs make it, in pydantic: the class is theirs to use"
    ),
    "api/openai/shapes.py Sampling | worker/inference/request.py Generate": (
        "what OpenAI's clients may ask, and what our own may: limits differ"
    ),
    "core/insight/learned.py Learned | scheduler/learn/mean.py Mean": (
        "a row, and the mean that moves with every task"
    ),
    "core/tasks/outcome.py Outcome | wire/orders.py AttemptOutcome": (
        "an outcome by our clock, and as a worker says it, undecoded"
    ),
    "core/tasks/task.py Attempt | wire/tasks.py AttemptInfo": (
        "a row with all of it, and what readers take of older managers"
    ),
    "scheduler/events.py WorkerReady | scheduler/world/fleet.py FleetWorker": (
        "an event, and what the scheduler makes of it and changes from then on"
    ),
    "worker/inference/load/resolve.py Definition | "
    "worker/server/params.py ServedModel": (
        "a struct has one base, and that of the second says how it is served"
    ),
}
# Attributes whose class no annotation tells, with whose they are.
OF_LIBRARIES = {
    "self._model": "a model of transformers",
    "self._worker": "a user's worker, which is shown its task this way",
}

Find = Callable[[Package], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Ratchet:
    """`most` is how many `find` finds today."""

    name: str
    most: int
    find: Find


RATCHETS: list[Ratchet] = []


def ratchet(most: int) -> Callable[[Find], Find]:
    """Have what a function finds counted."""

    def add(find: Find) -> Find:
        RATCHETS.append(Ratchet(find.__name__, most, find))
        return find

    return add


@ratchet(628)
def modules(house: Package) -> Iterator[str]:
    """Every file of the package but `__init__.py` and migrations, which only grow."""
    for module in house.modules:
        if not module.path.startswith("store/migrations/versions/"):
            yield module.path


@ratchet(0)
def long_modules(house: Package) -> Iterator[str]:
    for module in house.modules:
        if module.lines > LONG_LINES:
            yield f"{module.path}: {module.lines} lines"


@ratchet(0)
def short_modules_with_one_importer(house: Package) -> Iterator[str]:
    """Imports for types alone count; those from tests do not."""
    for module in house.modules:
        if module.lines >= SHORT_LINES or module.path in SHORT_ON_PURPOSE:
            continue
        importers = house.importers[module.name]
        if len(importers) == 1:
            yield f"{module.path}: {module.lines} lines, for {min(importers)}"


@ratchet(0)
def full_folders(house: Package) -> Iterator[str]:
    """More modules than one can keep in mind; folders inside are not counted."""
    for folder, count in _folders(house).items():
        if count > MOST_IN_A_FOLDER and folder not in FOLDERS_ON_PURPOSE:
            yield f"{folder}: {count} modules"


@ratchet(1)
def folders_for_one_module(house: Package) -> Iterator[str]:
    """A folder inside counts as well: what holds one is not there for a module."""
    folders = _folders(house)
    inside = Counter(folder.rpartition("/")[0] for folder in folders)
    for folder, count in folders.items():
        is_small = count + inside[folder] < FEWEST_IN_A_FOLDER
        if is_small and folder not in FOLDERS_ON_PURPOSE:
            yield folder


def _folders(house: Package) -> Counter[str]:
    return Counter(module.folder for module in house.modules)


@ratchet(0)
def class_names_that_mean_two_things(house: Package) -> Iterator[str]:
    """Public classes at the top of more than one file."""
    found = defaultdict(list)
    for full in house.classes:
        module, _, name = full.rpartition(".")
        if not name.startswith("_"):
            found[name].append(module)
    for name, where in sorted(found.items()):
        if len(where) > 1:
            yield f"{name}: {', '.join(where)}"


@ratchet(0)
def gerund_modules(house: Package) -> Iterator[str]:
    """A word of the name ends in -ing and is not one of the free ones."""
    for module in house.modules:
        words = module.stem.split("_")
        if [w for w in words if w.endswith("ing") and w not in FREE_WORDS]:
            yield module.path


@ratchet(0)
def callbacks_and_parts_assigned_after_construction(house: Package) -> Iterator[str]:
    """`x.attr = value`, where x is not `self` and no library's object, and either

    - some class declares `attr` as a Callable (or an alias of one, or sets it to a
      lambda), and the value is a lambda, a name, an attribute or a `partial`; or
    - the value is an object of ours with behaviour: `self`, or a name whose
      annotation or constructor says so. Values and records are not meant.

    What a class does to another object of its own kind is its own affair.
    """
    for each in house.assignments:
        if each.is_own:
            continue
        is_callback = each.target.attr in house.called and _may_be_called(each.value)
        is_part = house.is_part(house.class_of(each.value, each))
        is_free = _is_of_a_library(house, each) or _is_of_its_kind(house, each)
        if (is_callback or is_part) and not is_free:
            yield str(each)


def _may_be_called(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return is_name(value.func, "partial")
    return isinstance(value, ast.Lambda | ast.Name | ast.Attribute)


def _is_of_a_library(house: Package, each: Assignment) -> bool:
    """Told by the class of `x` in `x.attr = ...` and in `x.y.attr = ...`."""
    receiver = each.target.value
    while isinstance(receiver, ast.Attribute) and not is_name(receiver.value, "self"):
        receiver = receiver.value
    name = house.class_of(receiver, each)
    return bool(name) and name.partition(".")[0] != "corral"


def _is_of_its_kind(house: Package, each: Assignment) -> bool:
    name = house.class_of(each.target.value, each)
    own = house.class_of(ast.Name("self"), each)
    return bool(own) and name == own


@ratchet(0)
def assignments_inside_another_object(house: Package) -> Iterator[str]:
    """`self.a.b = ...`, also augmented, and deeper.

    Free are objects of libraries, and records of the same room: fields and no
    behaviour. An object whose class cannot be told counts.
    """
    for each in house.assignments:
        owned = each.target.value
        if each.is_own or not _is_chain_of_self(owned):
            continue
        if ast.unparse(owned) in OF_LIBRARIES or _is_of_a_library(house, each):
            continue
        name = house.class_of(owned, each)
        is_near = name.startswith(f"corral.{each.source.room}.")
        if not (name in house.classes and is_near and not house.is_part(name)):
            yield str(each)


def _is_chain_of_self(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return is_name(node, "self")


@ratchet(8)
def field_lists_that_stand_twice(house: Package) -> Iterator[str]:
    """Pairs of classes with five fields or more that have the same names, in any
    order, or five names of which stand side by side in both, in the same order.

    Fields are what a class annotates in its body, whatever makes it a class of data.
    """
    yield from (pair for pair in _alike(house) if pair not in TWICE_ON_PURPOSE)


def _alike(house: Package) -> Iterator[str]:
    lists = [
        (f"{file.path} {owner.name}", fields)
        for file in house.files
        for owner in file.classes
        if len(fields := _fields(owner)) >= LEAST_FIELDS
    ]
    runs = [set(_runs(fields)) for _, fields in lists]
    for (a, first), (b, second) in combinations(enumerate(lists), 2):
        if runs[a] & runs[b] or set(first[1]) == set(second[1]):
            yield f"{first[0]} | {second[0]}"


def _fields(owner: ast.ClassDef) -> list[str]:
    return [
        node.target.id
        for node in owner.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if "ClassVar" not in ast.unparse(node.annotation)
    ]


def _runs(fields: list[str]) -> Iterator[tuple[str, ...]]:
    for start in range(len(fields) - LEAST_FIELDS + 1):
        yield tuple(fields[start : start + LEAST_FIELDS])


@ratchet(0)
def constructors_with_many_parameters(house: Package) -> Iterator[str]:
    """Written by hand, with more than six parameters beside `self`."""
    for file in house.files:
        for owner in file.classes:
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    given = node.args
                    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
                    name = f"{file.path} {owner.name}"
                    if len(named) - 1 > MOST_PARAMETERS and name not in MANY_ON_PURPOSE:
                        yield f"{name}: {len(named) - 1}"


@cache
def found_here(count: Ratchet) -> list[str]:
    return list(count.find(package()))


each_count = pytest.mark.parametrize("count", RATCHETS, ids=lambda count: count.name)


@each_count
def test_count_has_not_risen(count: Ratchet) -> None:
    found = found_here(count)
    assert len(found) <= count.most, (
        f"{count.name}: {len(found)}, where {count.most} are allowed. Mend the new "
        "one; where a rule wants it so, say in the commit why the number rises.\n"
        + "\n".join(found)
    )


@each_count
def test_count_that_has_fallen_is_written_down(count: Ratchet) -> None:
    found = len(found_here(count))
    assert found >= count.most, (
        f"{count.name}: fell from {count.most} to {found}. Write @ratchet({found}) "
        f"above `{count.name}` in {name_of(Path(__file__))}, so that it stays so."
    )


def test_what_is_exempt_is_still_there() -> None:
    house = package()
    paths = {module.path for module in house.modules}
    assert not SHORT_ON_PURPOSE.keys() - paths
    assert not FOLDERS_ON_PURPOSE.keys() - _folders(house).keys()
    names = {
        f"{file.path} {each.name}" for file in house.files for each in file.classes
    }
    assert not MANY_ON_PURPOSE.keys() - names
    assert not TWICE_ON_PURPOSE.keys() - set(_alike(house))
    owners = {ast.unparse(each.target.value) for each in house.assignments}
    assert not OF_LIBRARIES.keys() - owners


def made_of(**texts: str) -> Package:
    """A package of files below `room/`, each with its text."""
    return Package(
        tuple(
            Source(f"room/{name}.py", text.count("\n"), ast.parse(dedent(text)))
            for name, text in texts.items()
        )
    )


def test_module_imported_for_its_types_alone_has_an_importer() -> None:
    house = made_of(
        small="X = 1",
        user="""
            if TYPE_CHECKING:
                from corral.room.small import X
            """,
    )
    found = list(short_modules_with_one_importer(house))
    assert found == ["room/small.py: 0 lines, for corral.room.user"]


def test_free_words_are_no_gerunds() -> None:
    house = made_of(settling="", node_scaling="", ring="", string="", settings="")
    assert list(gerund_modules(house)) == ["room/settling.py"]


def test_callbacks_and_parts_are_told_from_values_and_libraries() -> None:
    house = made_of(
        parts="""
            class Settle:
                def __init__(self) -> None:
                    self.on_end: Callable[[], None] = lambda: None
                    self.on_end = print
                    self.part: Part | None = None
            class Part: ...
            @dataclass(frozen=True)
            class Value: ...
            """,
        user="""
            from fastapi import FastAPI
            from corral.room.parts import Part, Settle, Value
            def wire(settle: Settle, part: Part, value: Value, app: FastAPI):
                settle.on_end = part.stop
                settle.on_end = None
                settle.part = part
                settle.part = value
                app.state.part = part
            class User:
                def __init__(self, settle: Settle):
                    settle.on_end, settle.part = partial(print, 1), self
            """,
    )
    found = callbacks_and_parts_assigned_after_construction(house)
    assert [line.partition(" ")[2] for line in found] == [
        "settle.on_end = part.stop",
        "settle.part = part",
        "settle.on_end = partial(print, 1)",
        "settle.part = self",
    ]


def test_records_and_library_objects_may_be_changed_from_outside() -> None:
    house = made_of(
        parts="""
            import threading
            @dataclass
            class Record:
                count: int = 0
            class Other:
                count = 0
            class User:
                def __init__(self, other: Other, unknown: Any) -> None:
                    self.record = Record()
                    self.local = threading.local()
                    self.other = other
                    self.unknown = unknown
                def step(self) -> None:
                    self.record.count += 1
                    self.local.count = 1
                    self.other.count += 1
                    self.unknown.count = 1
            """,
    )
    found = assignments_inside_another_object(house)
    assert [line.split()[1] for line in found] == [
        "self.other.count",
        "self.unknown.count",
    ]


def test_field_list_stands_twice_when_equal_or_with_five_in_a_row() -> None:
    house = made_of(
        lists="""
            class First: a: int; b: int; c: int; d: int; e: int
            class Turned: e: int; d: int; c: int; b: int; a: int
            class Longer: z: int; a: int; b: int; c: int; d: int; e: int
            class Apart: a: int; b: int; z: int; c: int; d: int; e: int
            """
    )
    assert list(field_lists_that_stand_twice(house)) == [
        "room/lists.py First | room/lists.py Turned",
        "room/lists.py First | room/lists.py Longer",
        "room/lists.py Longer | room/lists.py Apart",
    ]


if __name__ == "__main__":
    for count in RATCHETS:
        if count.name in sys.argv[1:] or not sys.argv[1:]:
            found = found_here(count)
            lines = "".join(f"  {line}\n" for line in found)
            sys.stdout.write(f"{count.name}: {len(found)}\n{lines}")

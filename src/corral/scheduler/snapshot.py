"""A scheduler's whole state as plain values, so that a journal can begin anywhere.

Everything is a line of its own that names others by number: no depth, no cycle and no
code in it. Taking one is quick; values that never change are written out later.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any

from corral.errors import InvalidField
from corral.scheduler.explain.decisions import Recent

Line = list[Any]
"""A kind, and what it holds; another line is named by `[number]`."""

FORMAT = 2
"""Of journals: a state names its classes, so it rises when one moves."""
_ROOMS = ("corral.scheduler.", "corral.core.")
_PLAIN = frozenset([type(None), bool, int, float, str])
# JSON has no word for them.
_ENDLESS = frozenset([float("inf"), float("-inf")])
_ROWS: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    deque: "deque",
}
_PAIRS: dict[type, str] = {
    dict: "dict",
    Counter: "Counter",
    OrderedDict: "OrderedDict",
}
_EMPTY: dict[str, Callable[[], Any]] = {
    "list": list,
    "set": set,
    "deque": deque,
    "dict": dict,
    "Counter": Counter,
    "OrderedDict": OrderedDict,
}
_FACTORIES: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (int, float, list, dict, set)
}


class Snapshot:
    """Taken at once; `lines` may be read when there is time for it."""

    def __init__(self, root: object, without: object = None) -> None:
        """`without` is what is left out, wherever it stands."""
        self._numbers: dict[int, int] = {}
        self._values: list[object] = []
        self._without = without
        self._lines: list[Line | None] = []
        self._name(root)
        at = 0
        while at < len(self._values):
            value = self._values[at]
            self._lines[at] = None if _is_still(value) else self._line(value)
            at += 1

    def __len__(self) -> int:
        return len(self._lines)

    def lines(self) -> Iterator[Line]:
        """Every line, the root first; those of values come to it while it goes on."""
        at = 0
        while at < len(self._lines):
            line = self._lines[at]
            if line is None:
                line = self._lines[at] = self._line(self._values[at])
            yield line
            at += 1

    def _name(self, value: object) -> Any:
        """A plain value as it is, another by its number."""
        if type(value) in _PLAIN and value not in _ENDLESS:
            return value
        if value is self._without:
            return None
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._values)
            # Kept, so that no other value gets its address meanwhile.
            self._values.append(value)
            self._lines.append(None)
        return [number]

    def _line(self, value: Any) -> Line:
        kind, name = type(value), self._name
        if kind is Recent:
            # No decision looks at it, and it may be large.
            value = value.emptied()
        if kind is float:
            return ["float", str(value)]
        if kind in _ROWS:
            return [_ROWS[kind], *map(name, value)]
        if kind in _PAIRS:
            return [_PAIRS[kind], *((name(k), name(v)) for k, v in value.items())]
        if kind is defaultdict:
            made_by = value.default_factory.__name__
            pairs = ((name(k), name(v)) for k, v in value.items())
            return ["defaultdict", made_by, *pairs]
        if isinstance(value, MethodType):
            return ["method", name(value.__self__), value.__name__]
        where = _place(kind)
        if isinstance(value, tuple):
            return ["named", where, *map(name, value)]
        if isinstance(value, Enum):
            return ["enum", where, value.name]
        fields = vars(value) if hasattr(value, "__dict__") else _fields(kind)
        return [
            where,
            {f: name(getattr(value, f)) for f in fields if hasattr(value, f)},
        ]


def _place(kind: type) -> str:
    """The class it is here, whatever others made of it elsewhere."""
    for base in kind.__mro__:
        where = f"{base.__module__}:{base.__qualname__}"
        if where.startswith(_ROOMS):
            return where
    raise TypeError(f"no snapshot can hold a {kind.__name__}")


def _is_still(value: Any) -> bool:
    """Can it be written out later, because nothing in it ever changes?"""
    kind = type(value)
    if kind is tuple or kind is frozenset:
        return all(type(part) in _PLAIN for part in value)
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _fields(kind: type) -> list[str]:
    return [
        field
        for base in reversed(kind.__mro__)
        for field in base.__dict__.get("__slots__", ())
        if field not in ("__weakref__", "__dict__")
    ]


def restore(lines: Iterable[Line]) -> Any:
    """What a snapshot was taken of.

    Raises:
        InvalidField: these lines are none of a snapshot.
    """
    try:
        return _Restore(list(lines)).root()
    except (LookupError, TypeError, ValueError, AttributeError, ImportError) as error:
        raise InvalidField(f"this is no snapshot: {error}", field="state") from error


class _Restore:
    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self._made: dict[int, Any] = {}

    def root(self) -> Any:
        numbers = range(len(self._lines))
        for number in numbers:
            self._get([number])
        # Attributes first: what is a key somewhere must be whole to be one.
        later = []
        for number in numbers:
            kind = self._lines[number][0]
            if ":" in kind:
                self._fill_object(number)
            elif kind in _EMPTY or kind == "defaultdict":
                later.append(number)
        for number in later:
            self._fill(number)
        return self._made[0]

    def _get(self, named: Any) -> Any:
        if not isinstance(named, list):
            return named
        number = named[0]
        if number not in self._made:
            self._made[number] = self._make(self._lines[number])
        return self._made[number]

    def _make(self, line: Line) -> Any:
        kind, *parts = line
        if kind in _EMPTY:
            return _EMPTY[kind]()
        if kind == "float":
            return float(parts[0])
        if kind == "tuple":
            return tuple(map(self._get, parts))
        if kind == "frozenset":
            return frozenset(map(self._get, parts))
        if kind == "defaultdict":
            return defaultdict(_FACTORIES[parts[0]])
        if kind == "method":
            return _method(self._get(parts[0]), parts[1])
        if kind == "named":
            return _class(parts[0])(*map(self._get, parts[1:]))
        if kind == "enum":
            return _class(parts[0])[parts[1]]
        made = _class(kind)
        return made.__new__(made)

    def _fill_object(self, number: int) -> None:
        made = self._made[number]
        for field, named in self._lines[number][1].items():
            # As it stands there, whether its class lets others do so or not.
            object.__setattr__(made, field, self._get(named))

    def _fill(self, number: int) -> None:
        kind, *parts = self._lines[number]
        made = self._made[number]
        if kind in ("list", "deque"):
            made.extend(map(self._get, parts))
        elif kind == "set":
            made.update(map(self._get, parts))
        else:
            for key, value in parts[1:] if kind == "defaultdict" else parts:
                made[self._get(key)] = self._get(value)


def _class(where: str) -> Any:
    module, _, name = where.partition(":")
    found = getattr(import_module(module), name) if where.startswith(_ROOMS) else None
    if not isinstance(found, type) or found.__module__ != module:
        raise TypeError(f"{where!r} is no class of the scheduler")
    return found


def _method(owner: Any, name: str) -> MethodType:
    found = type(owner).__dict__[name]
    if not isinstance(found, FunctionType):
        raise TypeError(f"{name!r} is no method")
    return MethodType(found, owner)

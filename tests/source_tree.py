"""The project's own files, read as text and syntax trees, each file once.

Nothing is imported, so that a broken room is still measured.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "corral"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> list[Path]:
    return [p for f in folders for p in sorted((ROOT / f).rglob("*.py"))]


@cache
def parse(path: Path) -> ast.Module:
    """Kept, since many look at it: for files of the package."""
    return _parse(path)


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> Iterator[Function]:
    return (node for node in statements(path) if isinstance(node, Function))


def statements(path: Path) -> Iterator[ast.AST]:
    """All of a file, but no expressions: they are most of a tree."""
    todo: list[ast.AST] = [parse(path) if SRC in path.parents else _parse(path)]
    while todo:
        yield (node := todo.pop())
        todo += [each for each in ast.iter_child_nodes(node) if _is_block(each)]


def _is_block(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt | ast.excepthandler | ast.match_case)


@dataclass(frozen=True)
class Source:
    """One file of the package; `path` is below it, `name` as it is imported."""

    path: str
    lines: int
    tree: ast.Module

    @cached_property
    def name(self) -> str:
        parts = self.path.removesuffix(".py").removesuffix("/__init__").split("/")
        return ".".join(["corral", *(part for part in parts if part != "__init__")])

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def stem(self) -> str:
        return self.path.rpartition("/")[2].removesuffix(".py")

    @property
    def room(self) -> str:
        return self.name.split(".")[1] if "." in self.name else ""

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def imported(self) -> list[tuple[str, str]]:
        """What is imported, anywhere in the file: its name here, and its full one."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                for a in node.names:
                    found.append((a.asname or a.name, f"{node.module}.{a.name}"))
            elif isinstance(node, ast.Import):
                found += [(a.asname or a.name, a.name) for a in node.names]
        return found

    @cached_property
    def imports(self) -> dict[str, str]:
        return dict(self.imported)


@dataclass(frozen=True)
class Assignment:
    """One attribute that is set; a statement may have several."""

    source: Source
    owner: ast.ClassDef | None
    function: Function | None
    target: ast.Attribute
    value: ast.expr

    @property
    def is_own(self) -> bool:
        """Whether it is `self.attr = ...`."""
        return is_name(self.target.value, "self", "cls")

    def __str__(self) -> str:
        at = f"{self.source.path}:{self.target.lineno}"
        return f"{at} {ast.unparse(self.target)} = {ast.unparse(self.value)}"


@dataclass(frozen=True)
class Package:
    """Every file of the package, and what can be said of them together.

    Classes are followed one step only: to where a name is declared or imported from.
    That tells our own objects from those of libraries without a type checker.
    """

    files: tuple[Source, ...]

    @cached_property
    def modules(self) -> list[Source]:
        return [file for file in self.files if file.stem != "__init__"]

    @cached_property
    def _by_name(self) -> dict[str, Source]:
        return {file.name: file for file in self.files}

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """Who imports a file, for its types alone or for more."""
        found: dict[str, set[str]] = defaultdict(set)
        for file in self.files:
            for _, full in file.imported:
                above = full.rpartition(".")[0]
                found[full if full in self._by_name else above].add(file.name)
        return found

    @cached_property
    def assignments(self) -> list[Assignment]:
        """Every attribute that is set: plainly, with its type, or augmented."""
        return [each for file in self.files for each in _assigned(file, file.tree)]

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Those at the top of a file, by their full names."""
        return {
            f"{file.name}.{node.name}": node
            for file in self.files
            for node in file.tree.body
            if isinstance(node, ast.ClassDef)
        }

    @cached_property
    def called(self) -> set[str]:
        """Names that are declared somewhere as something to be called."""
        aliases = {"Callable"} | {
            node.targets[0].id
            for file in self.files
            for node in file.tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            if isinstance(node.value, ast.Subscript) and _head(node.value) == "Callable"
        }
        declared = {
            _last(node.target)
            for file in self.files
            for node in file.nodes
            if isinstance(node, ast.AnnAssign) and _head(node.annotation) in aliases
        }
        return declared | {
            each.target.attr
            for each in self.assignments
            if each.is_own and isinstance(each.value, ast.Lambda)
        }

    def class_of(self, node: ast.expr | None, where: Assignment) -> str:
        """The full name of an object's class, ours or a library's; '' if not known.

        Known are `self`, what has an annotation, and what a constructor made.
        """
        match node:
            case ast.Name(id="self") if where.owner:
                return f"{where.source.name}.{where.owner.name}"
            case ast.Name(id=name):
                return self._declared(where.function, node, where.source) or (
                    where.source.imports.get(name, "")
                )
            case ast.Attribute(value=ast.Name(id="self")):
                return self._declared(where.owner, node, where.source)
            case ast.BoolOp(values=[first, *_]):
                return self.class_of(first, where)
        return ""

    def _declared(self, scope: ast.AST | None, wanted: ast.expr, source: Source) -> str:
        """What a class says of `self.wanted`, or a function of its own names."""
        text = ast.unparse(wanted)
        for node in ast.walk(scope) if scope else ():
            if isinstance(node, ast.arg) and node.arg == text:
                return self._resolve(node.annotation, source)
            if isinstance(node, ast.AnnAssign) and _last(node.target) == _last(wanted):
                return self._resolve(node.annotation, source)
        for node in ast.walk(scope) if scope else ():
            for target, value in _pairs(node):
                if ast.unparse(target) != text:
                    continue
                if isinstance(value, ast.Call):
                    return self._resolve(value.func, source)
                if isinstance(value, ast.Name) and text != value.id:
                    return self._declared(scope, value, source)
        return ""

    def _resolve(self, node: ast.expr | None, source: Source) -> str:
        first, _, rest = _head(node).partition(".")
        here = f"{source.name}.{first}"
        full = here if here in self.classes else source.imports.get(first, "")
        if full in ("", "typing.Any"):
            return ""
        full = f"{full}.{rest}" if rest else full
        above, _, name = full.rpartition(".")
        # A package may pass on what a module of it declares.
        if full not in self.classes and above in self._by_name:
            return self._by_name[above].imports.get(name, full)
        return full

    def is_part(self, name: str) -> bool:
        """Whether a class of ours has behaviour of its own.

        Values and records have none: what is frozen, or has fields and no public
        methods.
        """
        node = self.classes.get(name)
        if node is None:
            return False
        made = "".join(ast.unparse(each) for each in node.decorator_list)
        bases = {_last(base) for base in node.bases}
        if "frozen=True" in made or bases & {"Enum", "StrEnum", "IntEnum"}:
            return False
        is_data = "dataclass" in made or bases & {"Struct", "BaseModel", "NamedTuple"}
        return not is_data or any(
            isinstance(each, Function)
            and not each.name.startswith("_")
            and not each.decorator_list
            for each in node.body
        )


@cache
def package() -> Package:
    """The package as it is in this working copy."""
    return Package(
        tuple(
            Source(
                path.relative_to(SRC).as_posix(),
                path.read_text(encoding="utf-8").count("\n"),
                parse(path),
            )
            for path in sources("src")
        )
    )


def is_name(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _assigned(
    source: Source,
    node: ast.AST,
    owner: ast.ClassDef | None = None,
    function: Function | None = None,
) -> Iterator[Assignment]:
    if isinstance(node, ast.ClassDef):
        owner, function = node, None
    elif isinstance(node, Function):
        function = node
    for target, value in _pairs(node):
        if isinstance(target, ast.Attribute):
            yield Assignment(source, owner, function, target, value)
    for child in ast.iter_child_nodes(node):
        if _is_block(child):
            yield from _assigned(source, child, owner, function)


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is set and to what; the whole right side where it is taken apart."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if not isinstance(target, ast.Tuple):
                    yield target, value
                elif isinstance(value, ast.Tuple):
                    yield from zip(target.elts, value.elts, strict=False)
                else:
                    yield from ((each, value) for each in target.elts)
        case ast.AugAssign(target=target, value=value):
            yield target, value
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value


def _head(node: ast.expr | None) -> str:
    """The name an annotation opens with: of `A[B] | None` it is A."""
    match node:
        case ast.BinOp(left=ast.Constant(value=None), right=right):
            return _head(right)
        case ast.BinOp(left=left):
            return _head(left)
        case ast.Subscript(value=value):
            return _head(value)
        case ast.Name() | ast.Attribute():
            return ast.unparse(node)
    return ""


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]

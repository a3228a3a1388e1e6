"""The house rules a linter does not know: sizes, names, what must be documented.

What the house does not keep to yet is counted in tests/test_ratchets.py.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests.source_tree import ROOT, SRC, functions, name_of, package, parse, sources
from tests.spec_report import read_items

FILE_LIMIT = 700
FUNCTION_LIMIT = 70
ATTIC = re.compile(r"(^|_)(utils?|helpers?|commons?|misc)($|_)|_(v\d+|new|fixed|old)$")
PUBLIC_API = {
    "AsyncClient",
    "Client",
    "ClusterManager",
    "EchoWorker",
    "InferenceWorker",
    "Job",
    "JobSchema",
    "Node",
    "RunScriptWorker",
    "SleepWorker",
    "Worker",
    "__version__",
    "errors",
    "job_from_schema",
    "progress",
    "task",
}
# What `core` and `scheduler` may import beside each other and our errors: nothing that
# knows a clock, a file, a network, a process, a thread or chance.
PURE_MODULES = frozenset(
    {
        "__future__",
        "bisect",
        "collections",
        "collections.abc",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "shlex",
        "statistics",
        "types",
        "typing",
        "urllib.parse",
        "zlib",
    }
)
CLOCKS = {"datetime", "date", "datetime.datetime", "datetime.date"}
# By room: of ours, and by file: the one thing more, with the reason.
PURE_ROOMS = {
    "core": ("corral.core", "corral.errors"),
    "scheduler": ("corral.core", "corral.scheduler", "corral.errors"),
}
PURE_ENOUGH = {
    "core/tasks/environment.py": {
        "pathlib.PurePosixPath": "paths as words; no file is looked at",
    },
    "scheduler/snapshot.py": {
        "importlib.import_module": "finds classes of core and scheduler by name",
    },
}
# Files that may sleep, with the reason; a test itself waits on a signal.
SLEEPERS = {
    "tests/acceptance/cluster.py": "polls a cluster from outside",
    "tests/acceptance/painting.py": "is work that takes its time",
    "tests/unit/agent/conftest.py": "polls a process that has no signal to give",
    "tests/unit/agent/standin.py": "polls a process that has no signal to give",
    "tests/unit/agent/standin_supervisor.py": "is a process that hangs on purpose",
}


def kept_files() -> list[Path]:
    """What git keeps or would keep; everything but hidden folders without git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        names = [ROOT / name for name in listed.stdout.split("\0") if name]
        return [path for path in names if path.is_file()]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not any(p.startswith(".") for p in path.relative_to(ROOT).parts)
    ]


def declared_requirements(*groups: str) -> set[str]:
    """Normalised names of what pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = list(project["project"]["dependencies"])
    for group in groups:
        wanted += project["dependency-groups"].get(group, [])
        wanted += project["project"]["optional-dependencies"].get(group, [])
    return {re.split(r"[^A-Za-z0-9._-]", line)[0].lower() for line in wanted}


def test_no_file_is_longer_than_700_lines() -> None:
    long = {
        name_of(path): lines
        for path in sources("src", "tests", "tools", "examples", "bench")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > FILE_LIMIT
    }
    assert not long


def test_no_function_is_longer_than_70_lines() -> None:
    long = {
        f"{name_of(path)}:{f.lineno} {f.name}": lines
        for path in sources("src", "tests", "tools", "examples", "bench")
        if path.read_text(encoding="utf-8").count("\n") > FUNCTION_LIMIT
        for f in functions(path)
        if (lines := (f.end_lineno or f.lineno) - f.lineno + 1) > FUNCTION_LIMIT
    }
    assert not long


def test_no_module_is_an_attic() -> None:
    parts = {part for path in sources("src") for part in path.relative_to(SRC).parts}
    assert not [part for part in parts if ATTIC.search(part.removesuffix(".py"))]


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name_of(path)
        for path in sources("src")
        if parse(path).body and not ast.get_docstring(parse(path))
    ]
    assert not silent


def test_core_and_scheduler_import_nothing_that_acts() -> None:
    used, found = set(), []
    for file in package().files:
        allowed = PURE_ROOMS.get(file.room)
        for _, full in file.imported if allowed else ():
            above = full.rpartition(".")[0]
            if not PURE_MODULES.isdisjoint((full, above)):
                continue
            if full.startswith(tuple(f"{room}." for room in allowed or ())):
                continue
            used.add((file.path, full))
            if full not in PURE_ENOUGH.get(file.path, {}):
                found.append(f"{file.path} {full}")
    assert not found
    # An exception nobody needs any more goes.
    assert used == {(path, full) for path, more in PURE_ENOUGH.items() for full in more}


def test_core_and_scheduler_have_no_clock_of_their_own() -> None:
    told = re.compile(r"\b(now|utcnow|today)$")
    assert not [
        f"{file.path}:{node.lineno}"
        for file in package().files
        if file.room in PURE_ROOMS
        for node in file.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if told.search(node.func.attr) and ast.unparse(node.func.value) in CLOCKS
    ]


@pytest.mark.spec("D11")
def test_every_function_has_type_hints_and_the_formatter_agrees() -> None:
    bare = [
        f"{name_of(path)}:{f.lineno} {f.name}"
        for path in sources("src")
        for f in functions(path)
        if f.returns is None or not _has_typed_arguments(f)
    ]
    assert not bare
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["format", "--check"], ["check"]):
        run = subprocess.run(
            [*ruff, *command, str(SRC)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout


def _has_typed_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    named += [star for star in (given.vararg, given.kwarg) if star]
    return all(a.annotation or a.arg in ("self", "cls") for a in named)


def test_public_api_is_what_is_written_here() -> None:
    import corral

    assert set(corral.__all__) == PUBLIC_API
    assert set(dir(corral)) == PUBLIC_API


@pytest.mark.parametrize("name", sorted(PUBLIC_API))
def test_public_name_loads(name: str) -> None:
    assert getattr(importlib.import_module("corral"), name) is not None


def test_importing_corral_loads_nothing_else() -> None:
    code = "import sys; old = set(sys.modules); import corral; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "src",
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(run.stdout.split())
    assert not [m for m in loaded if m.startswith("corral.")]
    assert not loaded & {"asyncio", "celery", "fastapi", "httpx", "pydantic"}


def test_the_worker_for_models_loads_no_library_for_them() -> None:
    code = "import sys; from corral import InferenceWorker; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "src",
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"torch", "transformers", "diffusers", "onnxruntime", "numpy"}
    assert not set(run.stdout.split()) & heavy


def test_rooms_do_not_import_through_the_public_api() -> None:
    """It loads lazily, where the import rules cannot see it."""
    lazy = PUBLIC_API - {"__version__", "errors"}
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources("src")
        if "from corral import" in path.read_text(encoding="utf-8")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ImportFrom) and node.module == "corral"
        if {name.name for name in node.names} & lazy
    ]
    assert not found


@pytest.mark.spec("A32", "D6")
def test_routes_see_neither_store_nor_cluster() -> None:
    """They decode, call a verb of the manager, encode; links and values are verbs'."""
    found = [
        f"{name_of(path)}: {seen}"
        for path in sources("src/corral/api")
        for node in ast.walk(parse(path))
        if (seen := _hidden_from_routes(node))
    ]
    assert not found, "\n".join(found)


def _hidden_from_routes(node: ast.AST) -> str:
    """What of it a route must not see; empty when it may."""
    hidden = {"Cluster", "ManagerContext", "Signals"}
    if isinstance(node, ast.Attribute) and node.attr == "ctx":
        return ast.unparse(node)
    if isinstance(node, ast.Import):
        return ", ".join(a.name for a in node.names if _is_below(a.name))
    if isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{alias.name}" for alias in node.names}
        return ", ".join(
            sorted(n for n in names if _is_below(n) or n.rpartition(".")[2] in hidden)
        )
    return ""


def test_what_routes_must_not_see_is_told() -> None:
    texts = {
        "who.manager.ctx.store": "who.manager.ctx",
        "import corral.store.base": "corral.store.base",
        "from corral import engine": "corral.engine",
        "from corral.manager.cluster.state import Cluster, NodeLink": (
            "corral.manager.cluster.state.Cluster"
        ),
        "from corral.store.base import Store": "corral.store.base.Store",
        "from corral.manager.app import Manager": "",
    }
    for text, seen in texts.items():
        found = [_hidden_from_routes(node) for node in ast.walk(ast.parse(text))]
        assert "".join(found) == seen


def _is_below(module: str) -> bool:
    return module.split(".")[:2] in (["corral", "store"], ["corral", "engine"])


def test_the_store_is_nine_seams_of_at_most_fifteen_calls() -> None:
    base = parse(SRC / "store" / "base.py")
    classes = {node.name: node for node in base.body if isinstance(node, ast.ClassDef)}
    seams = {
        ast.unparse(node.target): ast.unparse(node.annotation)
        for node in classes["Store"].body
        if isinstance(node, ast.AnnAssign)
    }
    words = "access events metrics models output queues registry results tasks"
    assert " ".join(sorted(seams)) == words
    for name in ("Store", *seams.values()):
        calls = [n for n in classes[name].body if isinstance(n, ast.AsyncFunctionDef)]
        assert 0 < len(calls) <= 15, name
        # None has more by another way.
        assert [ast.unparse(each) for each in classes[name].bases] == ["Protocol"]


def test_every_room_has_its_place() -> None:
    rooms = "agent api cli client core embedded engine manager scheduler store worker"
    missing = [r for r in rooms.split() if not (SRC / r / "__init__.py").is_file()]
    assert not missing
    assert (SRC / "settings" / "__init__.py").is_file()
    assert list((SRC / "api").glob("*/routes.py"))


@pytest.mark.spec("A30")
def test_requirements_are_declared_and_locked_with_hashes() -> None:
    wanted = declared_requirements()
    assert {"celery", "redis", "psutil"} <= wanted
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-zA-Z0-9])", lock.strip())
    assert all("--hash=sha256:" in entry for entry in entries)
    locked = {entry.split("==")[0] for entry in entries}
    assert wanted <= locked


def test_every_imported_package_is_a_declared_dependency() -> None:
    wanted, owners = declared_requirements("inference"), packages_distributions()
    undeclared = {
        f"{name_of(path)}: {top}"
        for path in sources("src")
        for top in _imported(parse(path))
        if top not in sys.stdlib_module_names and top not in ("corral", "__future__")
        if not {d.lower().replace("_", "-") for d in owners.get(top, [])} & wanted
    }
    assert not undeclared


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_every_dependency_has_its_reason_written_down() -> None:
    text = (ROOT / "docs/design/dependencies.md").read_text(encoding="utf-8")
    wanted = declared_requirements("build", "dev", "inference")
    assert not [name for name in sorted(wanted) if f"`{name}`" not in text]


def test_every_setting_is_documented() -> None:
    from corral.settings import Settings

    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    variables = [
        variable
        for name, field in Settings.model_fields.items()
        if isinstance(extra := field.json_schema_extra, dict)
        for variable in (f"CORRAL_{name.upper()}", *_aliases(extra.get("aliases")))
    ]
    assert variables
    assert not [v for v in variables if not re.search(rf"\b{v}\b", text)]


def _aliases(value: object) -> list[str]:
    return [str(alias) for alias in value] if isinstance(value, list) else []


def test_every_command_is_documented() -> None:
    import typer.main

    from corral.cli.main import app

    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    commands = sorted(_commands(typer.main.get_command(app), "corral"))
    assert commands
    assert not [c for c in commands if not re.search(rf"{c}\b", text)]


def _commands(group: Any, path: str) -> Iterator[str]:
    """Every command a user can see, under its whole name."""
    listed = group.list_commands(None) if hasattr(group, "list_commands") else []
    table = getattr(group, "table", {})
    for name in listed:
        if name not in table or not table[name].is_hidden:
            yield f"{path} {name}"
            yield from _commands(group.get_command(None, name), f"{path} {name}")


def test_no_kept_file_names_this_machine_or_a_registry() -> None:
    home = re.escape(f"{Path.home()}/")
    places = [re.escape(f"{ROOT}/"), home, r"/(home|Users)/[a-z][a-z0-9]*/"]
    hosts = [
        r"index-url[ =]+[\"']?(https?|file):",
        r"pypi\.org/simple",
        r"files\.pythonhosted\.org",
    ]
    bad = re.compile("|".join([*places, *hosts, r'"resolved": "' + "http"]))
    found = []
    for path in kept_files():
        if path == Path(__file__):
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{name_of(path)}:{number}"
            for number, line in enumerate(lines, 1)
            if bad.search(line)
        ]
    assert not found


def test_tests_wait_on_signals_instead_of_sleeping() -> None:
    sleeping = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources("tests")
        if name_of(path) not in SLEEPERS
        if "sleep(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("time.sleep", "sleep")
    ]
    assert not sleeping


def test_tests_use_our_own_code_for_real() -> None:
    mocked = re.compile(r"(patch|setattr)\(\s*['\"]corral\.")
    patched = [
        name_of(path)
        for path in sources("tests")
        if "setattr(" in (text := path.read_text(encoding="utf-8")) or "patch(" in text
        if mocked.search(text) or _sets_ours(ast.parse(text))
    ]
    assert not patched


def _sets_ours(tree: ast.Module) -> bool:
    """Is a name of our modules, or of what they declare, set from outside?"""
    ours = {
        (name.asname or name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if f"{getattr(node, 'module', None) or name.name}.".startswith("corral.")
    }
    return any(
        ast.unparse(node.args[0]).partition(".")[0] in ours
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args
        if isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"
    )


def test_every_test_file_is_run_by_a_make_target() -> None:
    # Under `make check` we are a part of that make: its flags are not for this one.
    ours = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    run = subprocess.run(
        ["make", "--silent", "print-tests"],
        cwd=ROOT,
        env=ours,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = {ROOT / name for name in run.stdout.split()}
    assert not [path for path in listed if not path.exists()]
    left_out = [
        name_of(path)
        for path in sources("tests")
        if path.name.startswith("test_") and not listed & {path, *path.parents}
    ]
    assert not left_out


def test_specification_lists_the_194_items_once_each() -> None:
    sizes = {"A": 32, "B": 28, "C": 68, "D": 25, "E": 41}
    wanted = [f"{g}{n}" for g, last in sizes.items() for n in range(1, last + 1)]
    assert list(read_items()) == wanted
    text = (ROOT / "docs/spec.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\| [A-E]\d+ \|", text, re.MULTILINE)) == len(wanted)


@pytest.mark.spec("D25")
def test_contributing_says_how_a_change_is_made() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").lower()
    for topic in ("feature branch", "conventional commits", "tests", "documentation"):
        assert topic in text
    assert "make check" in text


@pytest.mark.spec("E41")
def test_wheel_installs_with_licence_types_and_command(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(
        [*build, "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("corral-*.whl")
    place = tmp_path / "installed"
    install = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps"]
    subprocess.run(
        [*install, "--target", str(place), str(wheel)], check=True, capture_output=True
    )
    (facts,) = place.glob("corral-*.dist-info")
    assert "License-Expression: Apache-2.0" in (facts / "METADATA").read_text()
    assert "Apache License" in (facts / "licenses" / "LICENSE").read_text()
    command = "corral = corral.cli.main:main"
    assert command in (facts / "entry_points.txt").read_text()
    assert (place / "corral" / "py.typed").is_file()
    pages = place / "corral" / "dashboard" / "static"
    assert (pages / "index.html").is_file()
    assert (pages / "vendor" / "preact.LICENSE").is_file()

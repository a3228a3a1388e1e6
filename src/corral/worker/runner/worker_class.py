"""Finds the user's worker class by name. It imports user code: runners only."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from corral.errors import WorkerError

# A class need not derive from Worker: any of these methods will do.
ENTRY_POINTS = ("_run", "run", "run_batch")


def load_worker_class(path: str) -> type[Any]:
    """The class at `module:Class` or `package.module.Class`.

    Raises:
        WorkerError: it cannot be imported (the text has the import error), or is
            not a class that can run tasks.
    """
    _see_current_folder()
    module_name, _, class_name = path.partition(":")
    if not class_name:
        module_name, _, class_name = path.rpartition(".")
    if not module_name or not class_name:
        raise WorkerError(
            f"worker class {path!r} must be written as module:Class or module.Class",
            worker_class=path,
        )
    return _check(path, _find(_import(path, module_name), path, class_name))


def _see_current_folder() -> None:
    """Have modules of the current folder found, after everything that is installed.

    At the end: no file there may stand for a module of Python's, Corral's or another
    that somebody imports.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def _import(path: str, module_name: str) -> ModuleType:
    try:
        return import_module(module_name)
    except (Exception, SystemExit) as error:  # user code may raise anything at import
        raise WorkerError(
            f"cannot import {module_name!r} for worker class {path!r}: "
            f"{type(error).__name__}: {error}{_where(module_name, error)}",
            worker_class=path,
        ) from error


def _where(module_name: str, error: BaseException) -> str:
    """That the current folder was looked in, where the class's module is missing."""
    is_own = isinstance(error, ModuleNotFoundError) and (error.name or "\0") in (
        module_name,
        module_name.partition(".")[0],
    )
    return f" (looked in {Path.cwd()} last)" if is_own else ""


def _hidden(module: ModuleType) -> str:
    """Where a module of the current folder is hidden by an installed one."""
    top = module.__name__.partition(".")[0]
    own = next((p for p in (Path(f"{top}.py"), Path(top)) if p.exists()), None)
    origin = getattr(module, "__file__", None)
    if own is None or origin is None or Path(origin).is_relative_to(Path.cwd()):
        return ""
    return f"; it is {origin}, and hides {own} of {Path.cwd()}: give that another name"


def _find(module: ModuleType, path: str, class_name: str) -> Any:
    found: Any = module
    for part in class_name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise WorkerError(
                f"module {module.__name__!r} has no {class_name!r} (worker class "
                f"{path!r}){_hidden(module)}",
                worker_class=path,
            )
    return found


def _check(path: str, found: Any) -> type[Any]:
    if not isinstance(found, type):
        raise WorkerError(f"{path!r} is not a class", worker_class=path)
    if not any(callable(getattr(found, name, None)) for name in ENTRY_POINTS):
        raise WorkerError(
            f"worker class {path!r} has none of the methods run, _run, run_batch",
            worker_class=path,
        )
    return found

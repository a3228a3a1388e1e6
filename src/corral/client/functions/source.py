"""Where a function's code lies, and how it gets to the manager.

What goes is the project: the nearest folder above the module that has a
pyproject.toml, else the folder the module is imported from.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType

from corral.client.http.endpoint import Flow
from corral.errors import InvalidField, TooLarge

_PROJECT = "pyproject.toml"
_sent: dict[tuple[str, Path], str] = {}
_is_importing = False


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function in a folder: `path` is where in it modules are imported from."""

    folder: Path
    path: str
    module: str
    name: str


def find_source(body: FunctionType) -> FunctionSource:
    """The code of a function of a module.

    Raises:
        InvalidField: it has no file, or one that is not the caller's own.
    """
    module = sys.modules.get(body.__module__)
    file = _file_of(module)
    if module is None or file is None:
        raise _refusal(
            body.__name__,
            "was typed in, so there is no file to send: write it to a module",
        )
    name = _name_of(module)
    place = file.parent if file.stem == "__init__" else file.with_suffix("")
    parts = tuple(name.split("."))
    if place.parts[-len(parts) :] != parts:
        # Loaded under another name than its file's: that one is not there remotely.
        parts = (place.name,)
    start = place.parents[len(parts) - 1]
    folder = _project(start)
    _check_folder(body.__name__, start, folder)
    path = start.relative_to(folder).as_posix()
    return FunctionSource(
        folder, "" if path == "." else path, ".".join(parts), body.__name__
    )


def _file_of(module: ModuleType | None) -> Path | None:
    told = getattr(module, "__file__", None)
    file = Path(told).absolute() if told else None
    return file if file and file.suffix == ".py" and file.is_file() else None


def _name_of(module: ModuleType) -> str:
    """The name to import it by, also when it was started as the program."""
    spec = getattr(module, "__spec__", None)
    if module.__name__ != "__main__":
        return module.__name__
    return spec.name if spec else Path(str(module.__file__)).stem


def _project(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / _PROJECT).is_file():
            return folder
    return start


def _check_folder(name: str, start: Path, folder: Path) -> None:
    installed = [Path(place) for place in sysconfig.get_paths().values()]
    if any(start == place for place in installed):
        raise _refusal(name, "is part of an installed package, not of your project")
    shared = {Path.home(), Path(tempfile.gettempdir()), Path(folder.anchor)}
    if folder in shared:
        raise _refusal(
            name,
            f"would take all of {folder} along: put its module in a folder of its own",
        )


def _refusal(name: str, why: str) -> InvalidField:
    return InvalidField(f"function {name!r} {why}", field="function")


def send_source(source: FunctionSource, where: str) -> Flow[str]:
    """The digest of its folder; sent once per process, folder and manager `where`.

    Raises:
        TooLarge, InvalidField: the folder cannot be sent.
    """
    known = _sent.get((where, source.folder))
    if known is None:
        # Those who only call a function where they are need none of this.
        from corral.client.calls.objects import upload

        try:
            known = yield from upload(source.folder)
        except TooLarge as error:
            raise TooLarge(f"{source.folder}: {error.message}") from error
        _sent[where, source.folder] = known
    return known


@contextmanager
def importing() -> Iterator[None]:
    """While a worker imports a module, nothing in it may be submitted."""
    global _is_importing
    _is_importing = True
    try:
        yield
    finally:
        _is_importing = False


def refuse_while_importing(name: str) -> None:
    """A script without a guard would submit itself again wherever it runs.

    Raises:
        InvalidField: a worker is importing the script just now.
    """
    if _is_importing:
        raise _refusal(
            name,
            "is submitted while its module is imported: put that part under "
            "if __name__ == '__main__':",
        )

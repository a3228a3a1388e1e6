"""Which tests need the extra `inference`, so that all others run without PyTorch.

Read from imports, also those of fixtures beside a test and of helpers it uses; what a
function imports counts too.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAVY = frozenset({"torch", "transformers", "diffusers", "safetensors", "onnxruntime"})


def is_there() -> bool:
    """Is the library that all the rest of the extra stands on installed?"""
    return importlib.util.find_spec("torch") is not None


@cache
def needs_it(path: Path) -> bool:
    """Does this file import it, itself or by way of our own test helpers?"""
    return _needs(path, set())


def _needs(path: Path, seen: set[Path]) -> bool:
    if path in seen or not path.is_file():
        return False
    seen.add(path)
    names = _imported(path)
    if {name.partition(".")[0] for name in names} & HEAVY:
        return True
    own = [ROOT / f"{n.replace('.', '/')}.py" for n in names if n.startswith("tests.")]
    # The fixtures of its own folder; those of folders above serve many that need none.
    return any(_needs(each, seen) for each in [*own, path.with_name("conftest.py")])


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{n.name}" for n in node.names)}
    return names

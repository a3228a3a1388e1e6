"""Modules written and imported for one test, and a manager's objects for them."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.core.tree import is_tree
from corral.files.tree import load_tree
from tests.unit.client.stand_in import Answer, Seen, StandIn, fault

HEAD = "import corral\n\n"
DOUBLE = HEAD + "@corral.task(retries=2, timeout=5)\ndef double(x):\n    return 2 * x\n"
_names = (f"sample_{n}" for n in itertools.count())


@pytest.fixture
def load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Writes a module, in a folder of its own or the one given, and imports it."""
    loaded = []

    def load(text: str = DOUBLE, folder: str | None = None) -> Any:
        name = next(_names)
        place = tmp_path / (folder or name)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(place)
        loaded.append(name)
        return importlib.import_module(name)

    yield load
    for name in loaded:
        sys.modules.pop(name, None)


def framed(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The objects of one request: before each its length in four bytes."""
    while body:
        end = 4 + int.from_bytes(body[:4], "big")
        data, body = body[4:end], body[end:]
        yield hashlib.sha256(data).hexdigest(), data


def trees(kept: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Folders that were uploaded, by digest: their files."""
    found = {d: load_tree(d, kept.__getitem__) for d in kept if is_tree(kept[d])}
    return {
        digest: {f.name: b"".join(kept[c] for c in f.chunks) for f in tree.files}
        for digest, tree in found.items()
    }


@pytest.fixture
def objects(manager: StandIn) -> dict[str, bytes]:
    """What was uploaded; the manager has nothing at first."""
    kept: dict[str, bytes] = {}
    plain = manager.answer

    def answer(seen: Seen) -> Answer:
        if not seen.path.startswith("/objects"):
            return plain(seen)
        manager.seen.append(seen)
        if seen.path == "/objects/missing":
            missing = [d for d in seen.json["digests"] if d not in kept]
            return Answer({"missing": missing})
        if seen.path == "/objects":
            came = list(framed(seen.body))
            kept.update(came)
            return Answer({"digests": [digest for digest, _ in came], "size": 0}, 201)
        digest = seen.path.removeprefix("/objects/")
        if seen.method == "PUT":
            kept[digest] = seen.body
            return Answer({"digest": digest, "size": len(seen.body)}, 201)
        return Answer(kept[digest]) if digest in kept else fault("not_found", 404)

    manager.answer = answer  # type: ignore[method-assign]
    return kept

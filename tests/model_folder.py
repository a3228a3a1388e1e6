"""A folder of tiny real models, for tests that serve some."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any


def import_libraries() -> None:
    """Imported once, whoever is first: what they warn of then is their own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("diffusers.pipelines.auto_pipeline")
        import_module("transformers")


# Writers that are not the plain one. The last two take 37 MB each, and their time.
_LARGE = {"width": 512, "layers": 4, "longest": 4096, "is_endless": True}
_WRITERS: dict[str, dict[str, Any]] = {
    "novelist": {"longest": 1 << 17, "is_endless": True},
    "other-writer": {"seed": 7},
    "poet": {**_LARGE, "seed": 8},
    "scribe": {**_LARGE, "seed": 9},
}


class Models:
    """Each of them is made when it is first asked for."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def have(self, *names: str) -> str:
        """The folder, with these in it."""
        for name in names:
            if not (self.place / name).is_dir():
                self._make(name)
        return str(self.place)

    def _make(self, name: str) -> None:
        # Late: the libraries take seconds, which not everybody needs.
        from tests import tiny_models

        folder = self.place / name
        if name.endswith("-graph"):
            source = name.removesuffix("-graph")
            self.have(source)
            is_judge = source == "judge"
            tiny_models.export_graph(folder, self.place / source, is_judge=is_judge)
        elif name in _WRITERS:
            tiny_models.save_writer(folder, **_WRITERS[name])
        else:
            getattr(tiny_models, f"save_{name}")(folder)

"""The guide for people who come from Celery names what exists."""

from __future__ import annotations

import re
from pathlib import Path

from corral.compat import celery as compat
from corral.compat.call_options import REFUSED

GUIDE = (Path(__file__).parents[3] / "docs" / "from-celery.md").read_text("utf-8")


def test_every_example_is_python() -> None:
    examples = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        compile(example, "from-celery.md", "exec")


def test_guide_names_what_exists_and_what_is_refused() -> None:
    named = set(re.findall(r"corral\.compat\.celery[.:](\w+)", GUIDE))
    assert {name for name in named if not hasattr(compat, name)} == set()
    methods = set(re.findall(r"`(\w+)\(\)`", GUIDE)) - {"delay", "apply_async"}
    assert {"ready", "successful", "failed", "revoke", "forget"} <= methods
    options = {"link", "link_error", "chains", "groups", "chords"}
    assert all(name in GUIDE for name in options)
    assert set(REFUSED) >= {"link", "link_error", "chain", "chord", "group_id"}

"""The guide names calls that exist."""

from __future__ import annotations

import re
from pathlib import Path

from corral import errors
from corral.client.client import Calls

GUIDE = Path(__file__).parents[3] / "docs" / "client.md"


def test_guide_names_only_calls_and_errors_that_exist() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    called = set(re.findall(r"\bclient\.(\w+)\(", text))
    assert called - set(vars(Calls)) == set()
    raised = set(re.findall(r"\berrors\.(\w+)", text)) - {"py"}
    assert all(hasattr(errors, name) for name in raised)


def test_guide_names_every_call() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    calls = {name for name in vars(Calls) if not name.startswith("_")}
    simple = {"health", "node", "worker", "job_types"}
    assert [name for name in calls - simple if name not in text] == []


def test_every_example_is_python() -> None:
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(examples) >= 7
    for example in examples:
        compile(example, "client.md", "exec")
